"""Runs all benchmarks, each in a separate process: `make bench`.

    python -m benchmarks [PEER]...

A `PEER` is a benchmark that compares with another library, with its arguments, in one
word: `"rejax PYTHON"`. The table of all comparisons is printed again at the end.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.pairs import HEADER, ROW

NAMES = (
    "loop",
    "seeds",
    "host",
    "draws",
    "ppo",
    "continuous",
    "backend",
    "first_result",
    "monitor",
    "jym",
    "environments",
    "memory",
    "sweep",
    "results",
)


def main(peers: list[str]) -> str:
    """Runs the benchmarks and prints all comparisons; returns which ones failed."""
    rows, failed = [], []
    for name, *arguments in [*map(shlex.split, peers), *([name] for name in NAMES)]:
        print(f"\n== {name}", flush=True)
        code, new_rows = run_benchmark(name, arguments)
        rows += new_rows
        failed += [name] if code else []
    print("\n== all comparisons", HEADER, *rows, sep="\n")
    return f"failed: {', '.join(failed)}" if failed else ""


def run_benchmark(name: str, arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Runs and prints a benchmark; returns its exit code and its comparisons."""
    rows = []
    with subprocess.Popen(
        [sys.executable, "-u", "-m", f"benchmarks.{name}", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            rows += [line.rstrip("\n")] if ROW.fullmatch(line.rstrip("\n")) else []
    return process.returncode, rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
