"""Episodes: the results of a run at the episodes at which bsuite logs.

Rows of metrics are logged by steps. Totals between two rows are interpolated by
episodes, which is exact where episodes have the same length and rows are logged at
their ends. The files have the format of bsuite, whose `csv_load` reads them.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.errors import RlcliError
from rlcli.runs.files import replace_file
from rlcli.runs.metrics import FILE_NAME, read_metrics

_RATIOS = (1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
_MOST_EPISODES = 10**15  # of a run
_NAMES = {  # of bsuite
    "T": "steps",
    "t": "episode_len",
    "G": "episode_return",
    "total_raw_return": "raw_return",
    "max_raw_return": "best_episode",
    "total_denoised_return": "denoised_return",
}


def read_results(folder: Path) -> dict[int, list[dict[str, float]]]:
    """The rows of a run at bsuite's episodes, by seed."""
    by_seed: dict[int, list[Mapping[str, Any]]] = {}
    first: Mapping[str, Any] | None = None
    for number, row in enumerate(read_metrics(folder), 1):
        if row.get("ep"):  # no evaluation, and not before the first episode
            first = first or row
            if not _is_sound(row, first):
                raise RlcliError(
                    f"`{folder / FILE_NAME}`, line {number}: not a row of a run of "
                    "bsuite",
                    "remove the line, or train the run again",
                )
            by_seed.setdefault(row["seed"], []).append(row)
    return {seed: _at_episodes(rows) for seed, rows in by_seed.items()}


def _is_sound(row: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Whether a row has finite numbers where the first row has some."""
    values: list[Any] = [row.get(name) for name in filter(_is_result, first)]
    return (
        type(row["ep"]) is int
        and 0 < row["ep"] <= _MOST_EPISODES
        and type(row.get("seed")) is int
        and all(type(each) in (int, float) for each in values)
        and all(map(math.isfinite, values))
    )


def _is_result(name: str) -> bool:
    return name in _NAMES or name.startswith("total_")


def logged_episodes(last: int) -> list[int]:
    """The episodes at which bsuite logs, as its `_logarithmic_logging`."""
    exponents = range(len(str(last)))
    found = {10**exponent * ratio for exponent in exponents for ratio in _RATIOS}
    return [int(each) for each in sorted(found) if each == int(each) and each <= last]


def _at_episodes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Rows of metrics as rows of bsuite."""
    ends = np.array([row["ep"] for row in rows], float)
    episodes = np.array(logged_episodes(int(ends[-1])), float)
    # The last row before or at an episode; the first one before the first row.
    before = np.maximum(np.searchsorted(ends, episodes, side="right") - 1, 0)
    columns: dict[str, np.ndarray] = {"episode": episodes}
    for field in rows[0]:
        if not _is_result(field):
            continue
        values = np.array([row[field] for row in rows], float)
        if field == "T" or field.startswith("total_"):
            values = np.interp(episodes, [0, *ends], [0, *values])
        else:
            values = values[before]
        columns[_NAMES.get(field, field)] = values
    return [
        dict(zip(columns, map(float, values), strict=True))
        for values in zip(*columns.values(), strict=True)
    ]


def write_csv(rows: Sequence[Mapping[str, float]], folder: Path, id: str) -> None:
    """Writes the rows of an id where bsuite's `csv_load.load_bsuite(folder)` looks."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]])
    writer.writeheader()
    writer.writerows(rows)
    name = f"bsuite_id_-_{id.replace('/', '-')}.csv"
    replace_file(folder / name, text.getvalue().encode())
