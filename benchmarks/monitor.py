"""What watching costs: training with its live panel, without it, and the bare loop.

    python -m benchmarks.monitor

The same recipe three times, alternately: `rlcli.chunks` with the TrainMonitor on a
terminal of 120 columns, rows of metrics, `log.txt` and the looks between two chunks;
the same with `quiet`; and the loop's `advance` alone, in chunks of the same size. No
checkpoints, no evaluation. Compile time stands apart.
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
    """Makes stderr a terminal, whose output nobody reads."""
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
    """Prints steps per second of both, and their ratio in each round."""
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

    def of_run(chunks: Iterator[Any]) -> float:
        """Steps per second over some chunks, of which one has gone before."""
        before, start = next(chunks).step, time.perf_counter()
        for _ in range(CHUNKS):
            step = next(chunks).step
        return (step - before) / (time.perf_counter() - start)

    with tempfile.TemporaryDirectory() as folder, terminal():
        watched = rlcli.chunks(data, run=f"{folder}/watched")
        quiet = rlcli.chunks(data, run=f"{folder}/quiet", quiet=True)
        for _ in range(3):  # they compile, and find their pace
            size = -next(watched).step + next(watched).step
            next(quiet)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(CHUNKS):
                progress, _ = bare.advance(progress, size)
                jax.block_until_ready(progress.iteration)
            alone = CHUNKS * size / (time.perf_counter() - start)
            speeds.append((of_run(watched), of_run(quiet), alone))
            with_it, without, alone = speeds[-1]
            print(
                f"watched {with_it:,.0f}, quiet {without:,.0f}, bare {alone:,.0f} "
                f"steps/s: {with_it / without:.3f}, {without / alone:.3f}"
            )
        watched.close()
        quiet.close()
    monitor = statistics.median(a / b for a, b, _ in speeds)
    rows = statistics.median(b / c for _, b, c in speeds)
    print(f"median: TrainMonitor {monitor:.3f}, rows and looks {rows:.3f}")


if __name__ == "__main__":
    main()
