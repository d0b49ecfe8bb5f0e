"""Series: reads the values of a few metrics from `metrics.jsonl`, as arrays.

A file of a gigabyte has millions of rows with dozens of fields. Most rows are written
by rlcli in a known form, so the numbers are found by searching for the name of the
field, an order of magnitude faster than by parsing JSON. All other rows are parsed.
"""

from __future__ import annotations

import json
import math
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcli.runs import metrics
from rlcli.runs.files import exists, open_regular, parse_json

EVALUATION = "evaluation"  # the field of an evaluation; its metrics are `evaluation.…`
_START = re.compile(rb'\{"T": (\d{1,18}), "seed": (\d{1,18})([,}])')
_BLOCK = 2**22  # bytes to read at once
_LONGEST = 2**24  # bytes of a line; longer ones are damaged
_SAMPLED = 1000  # of this many rows, one is parsed to learn the names of its fields


class Series(NamedTuple):
    """The values of a metric of one seed, `[n]` each, in order of steps.

    Values that are not finite are nan.
    """

    steps: np.ndarray
    values: np.ndarray


class RunSeries(NamedTuple):
    """What `read_series` finds in a run."""

    by_metric: Mapping[str, Mapping[int, Series]]  # metric -> seed -> series
    metrics: frozenset[str]  # names in the file; those in few rows may be missing
    damaged: int  # number of lines that are not rows of metrics


class _Field:
    """Finds a metric in rows, and collects its values by seed."""

    def __init__(self, metric: str) -> None:
        head, dot, tail = metric.partition(".")
        self.metric = metric
        self.is_evaluation = bool(dot) and head == EVALUATION
        name = json.dumps(tail if self.is_evaluation else metric, ensure_ascii=False)
        # With what is before it, because a name may end in another one: "x\"a".
        self.patterns = tuple(f"{start}{name}: ".encode() for start in (", ", "{"))
        self.steps: dict[int, array[int]] = {}
        self.values: dict[int, array[float]] = {}

    def append(self, step: int, seed: int, value: float) -> None:
        if seed not in self.steps:
            self.steps[seed], self.values[seed] = array("q"), array("d")
        self.steps[seed].append(step)
        self.values[seed].append(value)

    def series(self) -> dict[int, Series]:
        return {
            seed: _sort(np.array(steps, np.int64), np.array(self.values[seed]))
            for seed, steps in sorted(self.steps.items())
        }


def _sort(steps: np.ndarray, values: np.ndarray) -> Series:
    """In order of steps; of several rows with one step, the last one."""
    if (np.diff(steps) <= 0).any():
        steps, index = np.unique(steps[::-1], return_index=True)
        values = values[::-1][index]
    values[~np.isfinite(values)] = math.nan
    return Series(steps, values)


def read_series(folder: str | Path, wanted: Sequence[str]) -> RunSeries:
    """Reads metrics of a run, all seeds; a missing file has none.

    `evaluation.mean` and the like are fields of evaluations; any other name is a field
    of the rows of log points. A partial last line is ignored, and so is a line that is
    not a row of metrics, which is counted.
    """
    fields = [_Field(metric) for metric in wanted]
    names: set[str] = set()
    has_evaluation, damaged = False, 0
    for number, line in enumerate(_read_lines(Path(folder) / metrics.FILE_NAME)):
        is_sampled = number % _SAMPLED == 0 or (
            not has_evaluation and b'"evaluation": {' in line
        )
        if is_sampled or not _scan(line, fields):
            row = _parse(line)
            if row is None:
                damaged += 1
                continue
            names |= _numbers(row).keys()
            has_evaluation = has_evaluation or EVALUATION in row
            _collect(row, fields)
    by_metric = {field.metric: field.series() for field in fields}
    return RunSeries(by_metric, frozenset(names), damaged)


def _read_lines(path: Path) -> Iterator[bytes]:
    """The complete lines of a file, without their ends; none if it is missing."""
    if not exists(path):
        return
    with open_regular(path, os.O_RDONLY, "rb") as file:
        rest = b""
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST:
                rest = b"?"  # damaged, as is the rest of this line


def _scan(line: bytes, fields: Sequence[_Field]) -> bool:
    """Collects the fields of a row as rlcli writes it; False for any other line."""
    match = _START.match(line)
    if match is None or line[-1:] != b"}":
        return False
    is_evaluation = line.startswith(b' "evaluation": {', match.end())
    found = []
    for field in fields:
        if field.is_evaluation is not is_evaluation:
            continue
        for pattern in field.patterns:
            begin = line.find(pattern)
            if begin >= 0:
                break
        else:
            continue
        begin += len(pattern)
        end = line.find(b",", begin)
        text = line[begin:] if end < 0 else line[begin:end]
        try:
            value = float(text.rstrip(b"}"))
        except ValueError:  # null, or no number
            return False
        found.append((field, value))
    step, seed = int(match[1]), int(match[2])
    for field, value in found:
        field.append(step, seed, value)
    return True


def _parse(line: bytes) -> dict[str, Any] | None:
    """A row of metrics; None for any other line."""
    try:
        row = parse_json(line.decode())
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and all(
        type(row.get(name)) is int and 0 <= row[name] < 2**63 for name in ("T", "seed")
    )
    return row if is_row else None


def _collect(row: Mapping[str, Any], fields: Sequence[_Field]) -> None:
    numbers = _numbers(row)
    for field in fields:
        if field.metric in numbers:
            field.append(row["T"], row["seed"], numbers[field.metric])


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by the name of their metric; null is nan."""
    evaluation = row.get(EVALUATION)
    prefix = ""
    if isinstance(evaluation, Mapping):
        row, prefix = evaluation, f"{EVALUATION}."
    return {
        f"{prefix}{name}": math.nan if value is None else float(value)
        for name, value in row.items()
        if value is None or type(value) in (int, float)
    }
