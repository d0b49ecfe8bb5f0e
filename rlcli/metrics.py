"""Metrics: the rows of a run, one per seed and log point, in `metrics.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rlcli.errors import RlcliError
from rlcli.files import replace_file, to_json

FILE = "metrics.jsonl"
FIRST_FIELDS = ("T", "seed", "ep", "G", "t", "avg_G", "avg_r")
# They tell of the machine and not of the run: two equal runs differ in them.
CLOCK_FIELDS = ("dt", "steps_per_second", "updates_per_second", "time")


class Metrics:
    """Appends rows to a run's `metrics.jsonl`: what stands there is one history.

    A row is a mapping with `T`, the steps of its seed, and `seed`; `ep`, `G`, `t`,
    `avg_G`, `avg_r`, any scalar, the clock fields; or, of an evaluation, `{"T", "seed",
    "evaluation": {"mean", "std", "min", "max", "length", "episodes"}}`. What is not
    finite is written as null: JSON knows no NaN.

    `resume_at` is the step at which the run goes on: rows beyond it, and a line that a
    killed process left unfinished, are cut off first. Without it the history begins.
    """

    def __init__(self, folder: str | Path, resume_at: int | None = None) -> None:
        path = Path(folder) / FILE
        if resume_at is not None and path.exists():
            _cut(path, resume_at)
        self._file = path.open("w" if resume_at is None else "a", encoding="utf-8")

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the rows of a log point, and hands them to the operating system."""
        lines = [to_json(_ordered(row)) for row in rows]
        self._file.write("".join(line + "\n" for line in lines))
        self._file.flush()

    def close(self) -> None:
        """Ends the writing; more than once does no harm."""
        self._file.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read(folder: str | Path) -> list[dict[str, Any]]:
    """All rows of a run, in order; none where it has not logged yet.

    A last line without its end is still being written, and is left out.
    """
    path = Path(folder) / FILE
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        return [
            _parsed(path, number, line)
            for number, line in enumerate(file, 1)
            if line.endswith("\n")
        ]


def without_clock(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without what may differ between two equal runs."""
    return {name: value for name, value in row.items() if name not in CLOCK_FIELDS}


def _cut(path: Path, resume_at: int) -> None:
    """Keeps the whole rows up to `resume_at`, byte for byte."""
    with path.open("rb") as file:
        kept = [
            line
            for number, line in enumerate(file, 1)
            if line.endswith(b"\n")
            and _parsed(path, number, line.decode(errors="replace"))["T"] <= resume_at
        ]
    replace_file(path, b"".join(kept))


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("T"), int):
        raise RlcliError(
            f"`{path}`, line {number}: no row of metrics",
            "each line is a JSON object with `T`; remove the line to go on without it",
        )
    return row


def _ordered(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields every row has, then those of the algorithm, then the clock's."""
    first = [name for name in FIRST_FIELDS if name in row]
    clock = [name for name in CLOCK_FIELDS if name in row]
    between = [name for name in row if name not in (*first, *clock)]
    return {name: row[name] for name in (*first, *between, *clock)}
