"""Study cells: the cells of a study as a heat map of their returns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.results.claims import describe_claims
from rlcli.results.report.charts import Chart, HeatCell, draw_heat_map
from rlcli.runs.cell_table import describe_states, read_cells
from rlcli.runs.formatting import format_number
from rlcli.runs.naming import shorten_keys
from rlcli.runs.records import COMPLETE, Record
from rlcli.runs.study_record import Cell, Study

_ENVIRONMENT = "environment"
_MOST = 400  # cells of a heat map
_LEAST_FILLED = 0.5  # of its places: trials of a search fill few


def describe_study(study: Study, known: Mapping[Path, Record]) -> dict[str, Any]:
    """The states of a study's cells, and a heat map of their returns."""
    records = read_cells(study, known)
    return {
        "folder": str(study.folder),
        "states": describe_states(study, records),
        "claims": describe_claims(study),
        "chart": _draw_cells(study.cells, records),
    }


def _draw_cells(cells: Sequence[Cell], records: Sequence[Record]) -> Chart | None:
    """Returns by what tells cells apart; None if the cells are no grid."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for key, text in cell.values.items():
            values.setdefault(key, set()).add(text)
    if not values or len(cells) > _MOST:
        return None
    x = _ENVIRONMENT if len(values.get(_ENVIRONMENT, ())) > 1 else [*values][-1]
    rest = [key for key in values if key != x]
    names = dict(zip(rest, shorten_keys(rest), strict=True))
    places = [
        (
            ", ".join(
                cell.values[key] if key == "recipe" else f"{name}={cell.values[key]}"
                for key, name in names.items()
                if key in cell.values
            ),
            cell.values.get(x, "–"),
        )
        for cell in cells
    ]
    rows, columns = ({place[axis] for place in places} for axis in (0, 1))
    if len(places) < _LEAST_FILLED * len(rows) * len(columns):
        return None
    returns = [(each["return"] or {}).get("iqm") for each in records]
    ranges: dict[str, list[float]] = {}  # returns of one environment are in one unit
    for (_, column), value in zip(places, returns, strict=True):
        if value is not None and value == value:
            ranges.setdefault(column if x == _ENVIRONMENT else "", []).append(value)
    found = []
    for (row, column), value, record in zip(places, returns, records, strict=True):
        status = str(record["status"])
        share = text = None
        if value is not None and value == value:
            known = ranges[column if x == _ENVIRONMENT else ""]
            low, high = min(known), max(known)
            share = (value - low) / (high - low) if high > low else 0.5
            text = format_number(value) + ("" if status in COMPLETE else " …")
        found.append(HeatCell(row, column, share, text or status, status))
    unit = "its environment" if x == _ENVIRONMENT else "all cells"
    return draw_heat_map(
        "Returns of the cells",
        found,
        x=shorten_keys([x])[0],
        y=", ".join(names.values()),
        description="The interquartile mean of the returns over the seeds of each cell",
        note="Interquartile mean over seeds; the stronger the colour, the higher in "
        f"{unit}. … is not finished.",
    )
