"""Cell table: what tells cells apart × returns of seeds, as text."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.quoting import printable
from rlcli.runs.formatting import NOTHING, format_number
from rlcli.runs.naming import shorten_keys
from rlcli.runs.records import read_record
from rlcli.runs.study_record import Cell, Study

MISSING = "missing"  # the status of a run that never began, or was removed
_MOST_SEEDS = 10  # with a column of their own
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


def describe_recorded(study: Study, width: int | None = None) -> str:
    """The last returns of each cell in its run folder, and what they are."""
    results = [*map(_read_result, study.cells)]
    return f"{describe_results(results, width)}{_LEGEND}\n"


def describe_results(results: Sequence[CellResult], width: int | None = None) -> str:
    """A line for each result, below a heading; without seeds if they do not fit."""
    numbers = sorted({seed for each in results for seed in each.seeds})
    with_seeds = _align(_rows(results, numbers))
    longest = max(map(len, with_seeds))
    if len(numbers) <= _MOST_SEEDS and (width is None or longest <= width):
        return "".join(f"{line}\n" for line in with_seeds)
    return "".join(f"{line}\n" for line in _align(_rows(results, [])))


def _read_result(cell: Cell) -> CellResult:
    if not cell.exists:
        return CellResult(cell.values, {}, None, MISSING)
    record = read_record(cell.folder)
    returns, status = record["return"], record["status"]
    note = "" if status == "finished" else str(status)
    if returns is None:
        return CellResult(cell.values, {}, None, note)
    numbers, values = record["seeds"], returns["seeds"]
    # In a damaged file rows of some seeds are missing: whose are left is unknown.
    seeds = (
        dict(zip(numbers, values, strict=True)) if len(numbers) == len(values) else {}
    )
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
