"""Random combinations of parts: each is refused, or trained, used, killed and resumed.

`make combinations` runs it. Recipes are drawn from the JSON Schema; each is checked.
Every valid one, up to `--trained`, is trained for some hundred steps, evaluated,
exported to NumPy, killed and resumed to the same bytes.

A case is named by a number: `--seed NUMBER --cases 1` repeats it alone.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from compilation import cache_programs, disable_optimization

from rlcli.xla import threads

cache_programs(f"{tempfile.gettempdir()}/rlcli-combinations")  # before JAX
disable_optimization()
threads.apply_layout(threads.Layout("one", 1))

import jax  # noqa: E402
from combination_cases import Case, Outcome  # noqa: E402

_CLEARED = 10  # cases after which JAX forgets its programs
_REPORT = 25  # cases between two lines
_REASONS = 40  # in the table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--trained", type=int, default=10_000, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traceback", action="store_true", help="of every fault")
    options = parser.parse_args()
    gc.set_threshold(200_000, 20, 50)  # tracing allocates much
    warnings.filterwarnings("error", module="rlcli")
    table, start = Table(), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        for number in range(options.seed, options.seed + options.cases):
            case = Case(number, Path(name) / "case")
            try:
                trains = table.trained < options.trained
                table.add(case.run(trains=trains))
            except Exception as error:  # noqa: BLE001 - every one is a fault
                table.faults += 1
                text = f"{type(error).__name__}: {error}"
                print(f"{number}: {text:.600}\n    {json.dumps(case.recipe)}")
                if options.traceback:
                    traceback.print_exc()
                sys.stdout.flush()
            if (number + 1) % _CLEARED == 0:
                jax.clear_caches()
            if (number + 1) % _REPORT == 0:
                seconds = time.monotonic() - start
                print(f"{table.summary}, {seconds:.0f} s", flush=True)
    table.print()
    return int(table.faults > 0)


class Table:
    """Counts outcomes, and the reasons of refusals by kind."""

    def __init__(self) -> None:
        self.stages: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[tuple[str, str]] = collections.Counter()
        self.exported = self.resumed = self.faults = 0

    @property
    def trained(self) -> int:
        return self.stages["trained"]

    @property
    def summary(self) -> str:
        drawn = self.stages.total() + self.faults
        return (
            f"{drawn:,} drawn, {self.stages['refused']:,} refused, {self.trained:,} "
            f"trained, {self.stages['failed']:,} failed, {self.exported:,} exported, "
            f"{self.resumed:,} resumed equal, {self.faults:,} faults"
        )

    def add(self, outcome: Outcome) -> None:
        self.stages[outcome.stage] += 1
        if outcome.reason:
            self.reasons[outcome.stage, _kind(outcome.reason)] += 1
        self.exported += outcome.export == "exported"
        self.resumed += outcome.resumed == "equal"
        if outcome.export not in ("", "exported"):
            self.reasons["not exported", _kind(outcome.export)] += 1

    def print(self) -> None:
        for (stage, kind), count in self.reasons.most_common(_REASONS):
            print(f"{count:7,} {stage:12} {kind}")
        print(f"{len(self.reasons)} kinds of reasons\n{self.summary}")


def _kind(reason: str) -> str:
    """A message without what differs from case to case."""
    short = re.sub(r"`[^`]*`|[-\d][\d_.,e-]*|(?<=Box)\(.*|(?<=Dict)\(.*", "…", reason)
    return f"{short:.100}"


if __name__ == "__main__":
    sys.exit(main())
