"""Metrics: the rows of a run, one per seed and log point, in `metrics.jsonl`."""

from __future__ import annotations

import math
import os
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rlcli.errors import RlcliError, quote
from rlcli.runs import files

FILE_NAME = "metrics.jsonl"
_STEP = re.compile(rb'\{"T": (\d{1,18})[,}]')  # the beginning of every row
_EVALUATION = b'"evaluation": {'  # in the rows of evaluations
_TAIL = 2**14  # bytes in which the last rows are expected
_SEARCH = 2**22  # bytes before the end that are searched for an evaluation
_LONGEST = 2**24  # bytes of a line
_BLOCK = 2**16  # bytes whose rows are read one by one
_REMEDY = "remove the line to continue"
FIRST_FIELDS = ("T", "seed", "ep", "G", "t", "avg_G", "avg_r")
# Fields that depend on the machine: they differ between two equal runs.
CLOCK_FIELDS = ("dt", "steps_per_second", "updates_per_second", "time")
_INTEGERS = ("T", "seed", "ep", "updates", "restarts")
_NUMBERS = ("G", "t", "avg_G", "avg_r", *CLOCK_FIELDS)
_MOST = 2**63  # of what is counted
LARGEST = 1e150  # of other numbers: sums of their squares are finite
_NUMBER = (int, float, types.NoneType)
_SCALAR = (*_NUMBER, str)


class Metrics:
    """Appends rows to a run's `metrics.jsonl`, which contains a single history.

    A row is a mapping with `T`, the steps of its seed, and `seed`; `ep`, `G`, `t`,
    `avg_G`, `avg_r`, any scalar, and the clock fields. The row of an evaluation is
    `{"T", "seed", "evaluation": {"mean", "std", "min", "max", "length", "episodes"}}`.
    Numbers that are not finite become null, because JSON has no NaN.

    `resume_at` is the step at which the run resumes: rows beyond it, and an incomplete
    last line of a killed process, are removed first. If None, the file starts empty.
    """

    def __init__(self, folder: str | Path, resume_at: int | None = None) -> None:
        self._path = Path(folder) / FILE_NAME
        _truncate(self._path, resume_at)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = files.open_regular(self._path, flags, "a", encoding="utf-8")

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the rows of a log point, and flushes the file."""
        lines = [files.to_json(_order_fields(row)) for row in rows]
        with files.name_file_in_errors(self._path, "written"):
            self._file.write("".join(line + "\n" for line in lines))
            self._file.flush()

    def sync(self) -> None:
        """Writes to the disk what was appended, as before a checkpoint.

        A machine that fails may otherwise keep the checkpoint, but not its rows.
        """
        with files.name_file_in_errors(self._path, "written"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; may be called repeatedly."""
        with files.name_file_in_errors(self._path, "written"):
            self._file.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """Reads all rows of a run, in order; [] if it has not logged yet.

    Skips an incomplete last line, which is still being written.
    """
    path = Path(folder) / FILE_NAME
    if not files.exists(path):
        return []
    with files.open_regular(path, os.O_RDONLY, "rb") as file:
        return [
            _parse_row(path, number, line)
            for number, line in files.read_lines(file, path, _REMEDY, longest=_LONGEST)
        ]


class LineReader:
    """Reads the complete lines of metrics while another process appends to them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._last_line = b""  # which ends at the offset

    def read(self) -> list[bytes] | None:
        """The lines since the last call; None if a resume has removed some of them."""
        if not files.exists(self._path):
            return [] if self._offset == 0 else None
        with files.open_regular(self._path, os.O_RDONLY, "rb") as file:
            file.seek(self._offset - len(self._last_line))
            if file.read(len(self._last_line)) != self._last_line:
                return None
            rest = files.read_lines(file, self._path, _REMEDY, longest=_LONGEST)
            lines = [line for _, line in rest]
        if lines:
            self._last_line = lines[-1]
        self._offset += sum(map(len, lines))
        return lines


class MetricsReader:
    """Reads the rows of a run while another process appends to them."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / FILE_NAME
        self._lines = LineReader(self._path)

    def read(self) -> list[dict[str, Any]] | None:
        """The rows since the last call; None if a resume has removed some of them."""
        lines = self._lines.read()
        if lines is None:
            return None
        return [_parse_row(self._path, None, line) for line in lines]


def read_last_rows(
    folder: str | Path, seeds: int, *, with_evaluation: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of the last log point, and of the last evaluation, at most one per seed.

    Reads only the end of the file: an evaluation further than `_SEARCH` bytes before it
    is not found, and none is searched for unless `with_evaluation`.
    """
    path = Path(folder) / FILE_NAME
    if not files.exists(path):
        return [], []
    with files.open_regular(path, os.O_RDONLY, "rb") as file:
        size, length = file.seek(0, os.SEEK_END), _TAIL
        while True:
            file.seek(max(0, size - length))
            lines = file.read(length).split(b"\n")[:-1]  # without an incomplete line
            if length < size:
                lines = lines[1:]
            rows = _last_group(path, lines, seeds, is_evaluation=False)
            evaluation = _last_group(path, lines, seeds, is_evaluation=True)
            is_found = len(evaluation) == seeds or not with_evaluation
            if (len(rows) == seeds and is_found) or length >= min(size, _SEARCH):
                return rows, evaluation
            length *= 8


def _last_group(
    path: Path, lines: Sequence[bytes], seeds: int, *, is_evaluation: bool
) -> list[dict[str, Any]]:
    """The last rows of a kind with an equal step."""
    rows: list[dict[str, Any]] = []
    for line in reversed(lines):
        if (_EVALUATION in line) != is_evaluation:
            continue
        row = _parse_row(path, None, line)
        if rows and row["T"] != rows[0]["T"]:
            break
        rows.insert(0, row)
        if len(rows) == seeds:
            break
    return rows


def drop_clock_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without the fields that may differ between two equal runs."""
    return {name: value for name, value in row.items() if name not in CLOCK_FIELDS}


def _truncate(path: Path, resume_at: int | None) -> None:
    """Removes the rows beyond a step (all rows if None), and an incomplete line.

    Truncates without rewriting, so a killed process leaves either the old or the new
    history.
    """
    if not files.exists(path):
        return
    with (
        files.name_file_in_errors(path, "written"),
        files.open_regular(path, os.O_RDWR, "r+b") as file,
    ):
        file.truncate(0 if resume_at is None else _end_of(path, file, resume_at))


def _end_of(path: Path, file: IO[bytes], step: int) -> int:
    """The offset after the last row at or before a step; rows are ordered by step."""

    def read_line(offset: int) -> bytes:
        """The complete line at an offset; b"" if there is none."""
        file.seek(offset)
        line = file.readline(_LONGEST)
        if line.endswith(b"\n"):
            return line
        if len(line) == _LONGEST:
            message = f"`{path}` is damaged: a line has more than {_LONGEST:,} bytes"
            raise RlcliError(message)
        return b""

    def find_row(offset: int) -> int:
        """The offset of the first row that begins there or later."""
        return offset and offset - 1 + len(read_line(offset - 1))

    def step_at(begin: int) -> float:
        """The step of the row at an offset; inf after the last one."""
        line = read_line(begin)
        if not line:
            return math.inf
        if match := _STEP.match(line):  # as `append` has written it
            return int(match[1])
        file.seek(0)
        before = iter(lambda: file.tell() < begin and file.readline(), False)
        return _parse_row(path, 1 + sum(1 for _ in before), line)["T"]

    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _BLOCK:
        middle = (low + high) // 2
        if step_at(find_row(middle)) <= step:
            low = middle
        else:
            high = middle
    end = find_row(low)
    while step_at(end) <= step:  # each row, so that a damaged one is found
        end += len(read_line(end))
    return end


def _parse_row(path: Path, number: int | None, line: bytes) -> dict[str, Any]:
    try:
        row = files.parse_json(line.decode(errors="replace"))
    except (ValueError, RecursionError):  # not JSON, or too deeply nested
        row = None
    if not isinstance(row, dict) or (fault := _find_fault(row)) is not None:
        about = f", but has a wrong {quote(fault)}" if isinstance(row, dict) else ""
        raise RlcliError(
            f"`{path}`{f', line {number}' if number else ''}: not a row of metrics",
            f"each line is a JSON object of numbers, with `T` and `seed`{about}; "
            f"{_REMEDY}",
        )
    for values in (row, row.get("evaluation", {})):
        for name, value in values.items():
            if type(value) in (float, int) and not -LARGEST < value < LARGEST:
                values[name] = None  # as what is not finite
    return row


def _find_fault(row: Mapping[str, Any]) -> str | None:
    """A field that `Metrics` never writes so, because the file is from elsewhere."""
    for name in ("T", "seed"):
        if name not in row:
            return name
    for name, value in row.items():
        if name in _INTEGERS:
            is_sound = type(value) is int and 0 <= value < _MOST
        elif name == "evaluation":
            is_sound = isinstance(value, dict) and "mean" in value
            is_sound = is_sound and all(isinstance(x, _NUMBER) for x in value.values())
            is_sound = is_sound and (value.get("episodes", 1) or 0) >= 1
        else:
            is_sound = isinstance(value, _NUMBER if name in _NUMBERS else _SCALAR)
        if not is_sound:
            return name
    return None


def _order_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Orders fields: those of every row, those of the algorithm, the clock fields."""
    first = [name for name in FIRST_FIELDS if name in row]
    clock = [name for name in CLOCK_FIELDS if name in row]
    middle = [name for name in row if name not in (*first, *clock)]
    return {name: row[name] for name in (*first, *middle, *clock)}
