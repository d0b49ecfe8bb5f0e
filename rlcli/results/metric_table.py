"""Metric table: the metrics of a run as a table for pandas, polars or NumPy."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.registry.paths import resolves
from rlcli.runs.locate import locate_run
from rlcli.runs.metrics import read_metrics


@resolves("run")
def metrics(run: str | Path) -> Any:
    """The rows of a run's metrics as a table, with a column of each metric.

    Rows of an evaluation have its results in columns such as `evaluation.mean`. A
    metric that a row has not is NaN, or None if it is text.

    Returns a pandas DataFrame; without pandas a polars DataFrame; without both a dict
    of NumPy arrays by name, `[rows]` each.

    Raises:
        RlcliError: if there is no such run, or its metrics are damaged.
    """
    rows = [_flatten(row) for row in read_metrics(locate_run(run).folder)]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    if importlib.util.find_spec("pandas"):
        import pandas

        return pandas.DataFrame(columns)
    if importlib.util.find_spec("polars"):
        import polars  # pyright: ignore[reportMissingImports] - of the user

        return polars.DataFrame(columns)
    return columns


def _flatten(row: Any) -> dict[str, Any]:
    """A row without nesting: `evaluation.mean` for the mean of an evaluation."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            flat[name] = value
    return flat


def _column(values: list[Any]) -> np.ndarray:
    present = [value for value in values if value is not None]
    if any(not isinstance(value, bool | int | float) for value in present):
        return np.array(values, object)
    if len(present) == len(values):
        return np.array(values)
    return np.array([np.nan if value is None else value for value in values], float)
