"""The time and memory of commands that read the folders of runs.

    python -m benchmarks.results

Trains a run of some seconds, copies its folder a thousand times for `rlcli runs`, and
repeats its rows, at later steps, up to a gigabyte for `rlcli plot`. Times are those of
whole commands whose files are in the file system's cache, medians of five.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

RUNS, ROUNDS = 1_000, 5
SIZE = 10**9  # bytes of metrics


def run(arguments: Sequence[str | Path]) -> tuple[float, int]:
    """The seconds of a command of rlcli, and its peak memory in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcli", *arguments], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    unit = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - start, usage.ru_maxrss * unit


def repeat_rows(metrics: Path) -> None:
    """Appends the rows again, each time at later steps, until the file has `SIZE`."""
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    period, end = max(row["T"] for row in rows), metrics.stat().st_size
    repetition = 0
    with metrics.open("a", encoding="utf-8") as file:
        while end < SIZE:
            repetition += 1
            shifted = ({**row, "T": row["T"] + repetition * period} for row in rows)
            end += file.write("".join(json.dumps(row) + "\n" for row in shifted))


def report(label: str, arguments: Sequence[str | Path]) -> None:
    """Prints the medians of a command."""
    rounds = [run(arguments) for _ in range(ROUNDS)]
    seconds, memory = map(statistics.median, zip(*rounds, strict=True))
    print(f"{label}: {seconds:.2f} s, {memory / 2**20:.0f} MiB", flush=True)


def main() -> None:
    """Trains, copies, and prints a line per command."""
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder, "original")
        run(["train", "dqn_cartpole", "--quiet", "--run", original])
        report("rlcli runs, 1 run", ["runs", original])
        for index in range(RUNS):
            copy = Path(folder, "runs", f"group_{index % 7}", f"run_{index}")
            shutil.copytree(
                original, copy, ignore=shutil.ignore_patterns("checkpoints", "films")
            )
        report(f"rlcli runs, {RUNS:,} runs", ["runs", Path(folder, "runs")])
        repeat_rows(original / "metrics.jsonl")
        report(f"rlcli plot, {SIZE:,} bytes of metrics", ["plot", original])


if __name__ == "__main__":
    main()
