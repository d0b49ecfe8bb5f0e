"""Metrics: the rows of a run, one per seed and log point, in `metrics.jsonl`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rlcli.errors import RlcliError
from rlcli.runs.files import name_file_in_errors, open_regular, to_json

FILE_NAME = "metrics.jsonl"
_STEP = re.compile(rb'\{"T": (\d{1,18})[,}]')  # how `append` begins every row
_BLOCK = 2**16  # bytes that are searched row by row
_LONGEST = 2**24  # bytes of a line
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
        self._path = Path(folder) / FILE_NAME
        _truncate(self._path, resume_at)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = open_regular(self._path, flags, "a", encoding="utf-8")

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the rows of a log point, and hands them to the operating system."""
        lines = [to_json(_order_fields(row)) for row in rows]
        with name_file_in_errors(self._path, "written"):
            self._file.write("".join(line + "\n" for line in lines))
            self._file.flush()

    def close(self) -> None:
        """Closes the file; it may be closed more than once."""
        with name_file_in_errors(self._path, "written"):
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


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """All rows of a run, in order; none where it has not logged yet.

    A last line without its end is still being written, and is left out.
    """
    path = Path(folder) / FILE_NAME
    if not os.path.lexists(path):
        return []
    with open_regular(path, os.O_RDONLY, encoding="utf-8", errors="replace") as file:
        return [
            _parse_row(path, number, line)
            for number, line in enumerate(file, 1)
            if line.endswith("\n")
        ]


def drop_clock_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without what may differ between two equal runs."""
    return {name: value for name, value in row.items() if name not in CLOCK_FIELDS}


def _truncate(path: Path, resume_at: int | None) -> None:
    """Cuts off the rows beyond a step, all of them for None, and an unfinished line.

    Rows are in the order of their steps, so the place is found by bisection. What
    remains is not rewritten, so a kill leaves one history or the other.
    """
    if not os.path.lexists(path):
        return
    with open_regular(path, os.O_RDWR, "r+b") as file:
        size = 0 if resume_at is None else _end_of(path, file, resume_at)
        with name_file_in_errors(path, "written"):
            file.truncate(size)


def _end_of(path: Path, file: IO[bytes], step: int) -> int:
    """The offset behind the last row at or before a step."""
    low, high = 0, _end_of_lines(path, file)
    while high - low > _BLOCK:
        file.seek((low + high) // 2)
        _read_line(path, file)  # the rest of a line
        middle = file.tell()
        if middle >= high:
            break
        if _next_step(path, file) <= step:
            low = middle
        else:
            high = middle
    file.seek(low)
    while (end := file.tell()) < high:
        if _next_step(path, file) > step:
            return end
    return high


def _end_of_lines(path: Path, file: IO[bytes]) -> int:
    """The offset behind the last line that is finished."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST))
    data = file.read()
    if size > _LONGEST and b"\n" not in data:
        raise _too_long(path)
    return size - len(data) + data.rfind(b"\n") + 1


def _read_line(path: Path, file: IO[bytes]) -> bytes:
    line = file.readline(_LONGEST)
    if not line.endswith(b"\n"):
        raise _too_long(path)
    return line


def _too_long(path: Path) -> RlcliError:
    return RlcliError(f"`{path}` is damaged: a line has over {_LONGEST:,} bytes")


def _next_step(path: Path, file: IO[bytes]) -> int:
    """The step of the next row; the rest of it is not parsed if `append` wrote it."""
    begin = file.tell()
    line = _read_line(path, file)
    if match := _STEP.match(line):
        return int(match[1])
    file.seek(0)
    number = sum(
        1 for _ in iter(lambda: file.tell() < begin and file.readline(), False)
    )
    return _parse_row(path, number + 1, line.decode(errors="replace"))["T"]


def _parse_row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, or nested deeply
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("T"), int):
        raise RlcliError(
            f"`{path}`, line {number}: no row of metrics",
            "each line is a JSON object with `T`; remove the line to go on without it",
        )
    return row


def _order_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields every row has, then those of the algorithm, then the clock's."""
    first = [name for name in FIRST_FIELDS if name in row]
    clock = [name for name in CLOCK_FIELDS if name in row]
    middle = [name for name in row if name not in (*first, *clock)]
    return {name: row[name] for name in (*first, *middle, *clock)}
