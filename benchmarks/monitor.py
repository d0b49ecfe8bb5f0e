"""What watching costs: training with its live panel, beside the bare loop.

    python -m benchmarks.monitor

The same recipe both times, alternately: `rlcli.chunks` with the TrainMonitor on a
terminal of 120 columns, rows of metrics, `log.txt` and the looks between two chunks;
and the loop's `advance` alone, in chunks of the same size. No checkpoints, no
evaluation. Compile time stands apart.
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

from benchmarks.loop import RECIPE
from rlcli import threads

CHUNKS, ROUNDS = 4, 15


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
    threads.apply(threads.choose(RECIPE))
    import jax

    import rlcli
    from rlcli import loop, recipe
    from rlcli.build import build

    train = {"steps": 100_000_000, "start": 0, "checkpoint": None}
    data = {**RECIPE, "train": train}
    bare = loop.make(build(recipe.load(data)))
    progress = jax.block_until_ready(bare.advance(bare.begin(), 1_000)[0])
    ratios = []
    with tempfile.TemporaryDirectory() as folder, terminal():
        watched = rlcli.chunks(data, run=f"{folder}/run")
        for _ in range(3):  # it compiles, and finds its pace
            step = next(watched).step
        for _ in range(ROUNDS):
            start, since = time.perf_counter(), step
            for _ in range(CHUNKS):
                step = next(watched).step
            middle, steps = time.perf_counter(), step - since
            for _ in range(CHUNKS):
                progress, _ = bare.advance(progress, steps // CHUNKS)
                jax.block_until_ready(progress.iteration)
            end = time.perf_counter()
            mine, plain = steps / (middle - start), steps / (end - middle)
            ratios.append(mine / plain)
            print(f"watched {mine:,.0f}, bare {plain:,.0f} steps/s: {ratios[-1]:.3f}")
        watched.close()
    print(f"median: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
