"""Monitor benchmark: training with the live panel, without it, and the bare loop.

    python -m benchmarks.monitor

Runs the same recipe three times, alternately: `rlcli.chunks` with the TrainMonitor on a
terminal of 120 columns, rows of metrics, `log.txt` and device-to-host transfers between
chunks; the same with `quiet`; and only the loop's `advance`, in chunks of the same
size. Without checkpoints, evaluation and compile time.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.loop import RECIPE
from rlcli.runs import thread_layout
from rlcli.xla import threads

CHUNKS, ROUNDS = 20, 8


@contextlib.contextmanager
def terminal() -> Iterator[None]:
    """Replaces stderr by a pseudo-terminal whose output is discarded."""
    reader, writer = os.openpty()

    def drain() -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while os.read(reader, 65_536):
                pass

    threading.Thread(target=drain, daemon=True).start()
    os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    before, sys.stderr = sys.stderr, os.fdopen(writer, "w")
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = before


def main() -> None:
    """Prints steps per second of all three, and their ratios in each round."""
    threads.apply_layout(thread_layout.choose_layout(RECIPE))
    import jax

    import rlcli
    from rlcli import loop, recipe
    from rlcli.assembly import build

    train = {"steps": 100_000_000, "start": 0, "checkpoint": None}
    data = {**RECIPE, "train": train}
    bare = loop.make_loop(build(recipe.load_recipe(data)))
    progress = jax.block_until_ready(bare.advance(bare.begin(), 1_000)[0])
    speeds: list[tuple[float, ...]] = []

    def measure(chunks: Iterator[Any]) -> float:
        """Returns steps per second over `CHUNKS` chunks, after one more."""
        before, start = next(chunks).step, time.perf_counter()
        for _ in range(CHUNKS):
            step = next(chunks).step
        return (step - before) / (time.perf_counter() - start)

    with tempfile.TemporaryDirectory() as folder, terminal():
        monitored = rlcli.chunks(data, run=f"{folder}/monitored")
        quiet = rlcli.chunks(data, run=f"{folder}/quiet", quiet=True)
        for _ in range(3):  # compiles, and adapts the chunk size
            size = -next(monitored).step + next(monitored).step
            next(quiet)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(CHUNKS):
                progress, _ = bare.advance(progress, size)
                jax.block_until_ready(progress.iteration)
            bare_speed = CHUNKS * size / (time.perf_counter() - start)
            speeds.append((measure(monitored), measure(quiet), bare_speed))
            with_panel, without, bare_speed = speeds[-1]
            print(
                f"panel {with_panel:,.0f}, quiet {without:,.0f}, "
                f"bare {bare_speed:,.0f} steps/s: "
                f"{with_panel / without:.3f}, {without / bare_speed:.3f}"
            )
        monitored.close()
        quiet.close()
    monitor = statistics.median(a / b for a, b, _ in speeds)
    rows = statistics.median(b / c for _, b, c in speeds)
    print(f"median: TrainMonitor {monitor:.3f}, rows and transfers {rows:.3f}")


if __name__ == "__main__":
    main()
