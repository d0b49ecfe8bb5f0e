"""Cell table: what tells cells apart × returns of seeds, and their states, as text."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.quoting import printable
from rlcli.runs import locks
from rlcli.runs.formatting import (
    NOTHING,
    format_duration,
    format_number,
    format_number_of,
)
from rlcli.runs.naming import shorten_keys
from rlcli.runs.records import COMPLETE, FIELDS, UNFINISHED, Record, read_record
from rlcli.runs.study_record import Cell, Study, find_study

MISSING = "missing"  # the status of a run that never began, or was removed
_FAILED = ("failed", "broken")
_ENDED_RUNS = (*COMPLETE, *_FAILED)
_ENDED = (*_ENDED_RUNS, MISSING)
ARRAY = "slurm"  # the folder that a study has if a job array trains its cells
_MOST_SEEDS = 10  # with a column of their own
_MOST_NAMES = 3  # of cells with the same error
_LEGEND = (
    "return: last evaluation, or ~ mean of training; over seeds: IQM and its 95 % "
    "bootstrap interval"
)


class CellResult(NamedTuple):
    """The returns of a cell."""

    values: Mapping[str, str]  # what tells it from the others
    seeds: Mapping[int, float | None]  # the mean return of each seed
    summary: Mapping[str, Any] | None  # with `iqm` and `ci95`, over seeds
    note: str = ""  # such as the status of a run that is not finished
    mark: str = ""  # before each return: `~` if it is that of training


def describe_recorded(
    study: Study, width: int | None = None, *, with_reasons: bool = True
) -> str:
    """The last returns of each cell in its run folder, what they are, and the states.

    `with_reasons`: also why cells have failed.
    """
    records = read_cells(study)
    pairs = zip(study.cells, records, strict=True)
    results = [_make_result(cell, record) for cell, record in pairs]
    lines = describe_states(study, records)
    states = "\n".join(lines if with_reasons else lines[:1])
    return f"{describe_results(results, width)}{_LEGEND}\n{states}\n"


def read_cells(study: Study, known: Mapping[Path, Record] = {}) -> list[Record]:
    """The records of the cells; `missing` is the status of those without a run.

    `known` are records that were just read, by their folders.
    """
    missing = {"status": MISSING, "reason": None}
    names: dict[Path, set[str]] = {}  # of what is in the folders of cells
    records = []
    for cell in study.cells:
        folder, parent = cell.folder, cell.folder.parent
        if parent not in names:
            with contextlib.suppress(OSError):  # missing
                names[parent] = {*os.listdir(parent)}
        if folder in known:
            records.append(known[folder])
        elif folder.name in names.setdefault(parent, set()):
            records.append(read_record(folder) | ({} if cell.exists else missing))
        else:
            empty = dict.fromkeys(FIELDS) | {"run": str(folder), "tags": []}
            records.append(empty | missing)
    return records


def describe_states(study: Study, records: Sequence[Record]) -> list[str]:
    """How many cells have which status and the time that is left; why some failed."""
    counts = Counter(str(record["status"]) for record in records)
    states = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    pruned = ("terminated",) if study.is_search else ()
    seconds = _estimate_left(records, (*_ENDED, *pruned))
    left = "" if seconds is None else f"; about {format_duration(seconds)} left"
    reasons = [
        (cell.label, f"{record['status']}: {_first_line(record)}")
        for cell, record in zip(study.cells, records, strict=True)
        if record["status"] in _FAILED
    ]
    cells = format_number_of(len(records), "cell")
    return [f"{cells}: {states}{left}", *group_reasons(reasons)]


def _first_line(record: Record) -> str:
    return str(record["reason"]).partition("\n")[0]


def group_reasons(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Lines with each reason, after the names to which it applies, or the first few.

    >>> group_reasons([("a", "no file"), ("b", "no memory"), ("c", "no file")])
    ['`a`, `c`: no file', '`b`: no memory']
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons:
        names.setdefault(reason, []).append(name)
    lines = []
    for reason, found in names.items():
        listing = ", ".join(f"`{name}`" for name in found[:_MOST_NAMES])
        if len(found) > _MOST_NAMES:
            listing = f"{len(found)} cells, {listing}, …"
        lines.append(printable(f"{listing}: {reason}"))
    return lines


def find_awaited(study: Study, records: Sequence[Record]) -> str | None:
    """What a study waits for, in words; "" if cells are in training.

    None if it has ended: all cells have, or nothing trains the rest: it was stopped.
    """
    states = [str(record["status"]) for record in records]
    if any(state in UNFINISHED for state in states):
        return ""
    ended = (*_ENDED_RUNS, *(("terminated",) if study.is_search else ()))
    left = sum(state not in ended for state in states)
    if not locks.is_free(study.folder):  # held by the process that begins the cells
        return f"waiting for its process to begin the next cell, {left} left"
    if left and (study.folder / ARRAY).is_dir():
        cells = format_number_of(left, "cell")
        return f"waiting for a task of its job array to begin, {cells} left"
    return None


def _estimate_left(records: Sequence[Record], ended: Sequence[str]) -> float | None:
    """Seconds until all cells have ended, by the speed of those in training.

    One that has no log point yet counts as the mean of all others, also of those that
    have ended.
    """
    sizes = [_count_steps(each, each["total_steps"]) for each in records]
    known = [size for size in sizes if size]
    running = [each for each in records if each["status"] in UNFINISHED]
    speeds = [each["steps_per_second"] for each in records if each["steps_per_second"]]
    if not (running and speeds and known):
        return None
    mean = sum(speeds) / len(speeds)
    speed = sum(each["steps_per_second"] or mean for each in running)
    left = sum(
        size - _count_steps(each, each["steps"])
        for each, size in zip(records, sizes, strict=True)
        if each["status"] not in ended
    )
    waiting = sum(each["status"] == MISSING for each in records)
    return (left + waiting * sum(known) / len(known)) / speed


def _count_steps(record: Record, steps: int | None) -> float:
    """The steps of all seeds of a run."""
    return (steps or 0) * len(record["seeds"] or ())


def describe_studies(folder: Path, records: Sequence[Record]) -> list[str]:
    """The states of studies that have not finished, around runs in a folder."""
    known = {Path(record["run"]): record for record in records}
    places = [parent for run in known for parent in run.parents]
    lines = []
    for place in dict.fromkeys(places):
        study = None
        if place == folder or folder in place.parents:
            with contextlib.suppress(RlcliError):  # damaged
                study = find_study(place)
                if study is not None and study.result.get("status") == "finished":
                    study = None  # a sweep, which does not train all to their ends
        if study is not None:
            cells = read_cells(study, known)
            if {record["status"] for record in cells} != {"finished"}:
                first, *_ = describe_states(study, cells)
                lines.append(printable(f"{place}: {first}"))
    return lines


def describe_results(results: Sequence[CellResult], width: int | None = None) -> str:
    """A line for each result, below a heading; without seeds if they do not fit."""
    numbers = sorted({seed for each in results for seed in each.seeds})
    lines = _align(_rows(results, numbers))
    is_wide = width is not None and max(map(len, lines)) > width
    if is_wide or len(numbers) > _MOST_SEEDS:
        lines = _align(_rows(results, []))
    return "".join(f"{line}\n" for line in lines)


def _make_result(cell: Cell, record: Record) -> CellResult:
    returns, status = record["return"], record["status"]
    note = "" if status == "finished" else str(status)
    if returns is None:
        return CellResult(cell.values, {}, None, note)
    numbers, values = record["seeds"] or [], returns["seeds"]
    # In a damaged file rows of some seeds are missing: whose are left is unknown.
    is_whole = len(numbers) == len(values)
    seeds = dict(zip(numbers, values, strict=True)) if is_whole else {}
    mark = "~" if returns["source"] == "training" else ""
    return CellResult(cell.values, seeds, returns, note, mark)


def _rows(results: Sequence[CellResult], seeds: Sequence[int]) -> list[list[str]]:
    """The cells of the heading, and of each result."""
    keys = [*dict.fromkeys(key for each in results for key in each.values)]
    has_interval = any(each.summary and each.summary["ci95"] for each in results)
    has_note = any(each.note for each in results)
    heading = [*shorten_keys(keys), *(f"seed {seed}" for seed in seeds), "IQM"]
    heading += ["95 % interval"] * has_interval + [""] * has_note
    rows = [heading]
    for each in results:
        cells = [each.values.get(key, NOTHING) for key in keys]
        numbers = [each.seeds.get(seed) for seed in seeds]
        numbers.append(each.summary["iqm"] if each.summary else None)
        cells += [
            NOTHING if number is None else each.mark + format_number(number)
            for number in numbers
        ]
        interval = each.summary["ci95"] if each.summary else None
        text = " to ".join(map(format_number, interval)) if interval else NOTHING
        cells += [text] * has_interval + [each.note] * has_note
        rows.append([printable(cell) for cell in cells])
    return rows


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]
