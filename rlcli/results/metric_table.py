"""Metric table: the metrics of a run as a table for pandas, polars or NumPy."""

import importlib.util
from collections.abc import Iterable, Mapping
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
    return make_table(_flatten(row) for row in read_metrics(locate_run(run).folder))


def episodes(
    run: str | Path,
    *,
    best: bool = False,
    episodes: int = 100,
    seed: int = 0,
    explore: bool = False,
    environment: str | None = None,
    trust: bool | None = None,
) -> Any:
    """Evaluates a run as `rlcli.eval`, and returns its episodes as a table.

    The columns are `seed`, `episode`, `return` and `length`; of a study also what
    tells its runs apart. The keywords are those of `rlcli.eval`. Returns a table of the
    same kind as `rlcli.metrics`.
    """
    keywords = locals()
    from rlcli.evaluation.evaluate import eval  # here: imports JAX

    result = eval(keywords.pop("run"), **keywords)
    return make_table(
        {
            **each.get("values", {}),
            "seed": row["seed"],
            "episode": number,
            "return": total,
            "length": length,
        }
        for each in result.get("cells", [result])
        for row in each["seeds"]
        for number, (total, length) in enumerate(
            zip(row["returns"], row["lengths"], strict=True)
        )
    )


def make_table(found: Iterable[Mapping[str, Any]]) -> Any:
    """Rows as a table of pandas or polars, or as arrays by name."""
    rows = [*found]
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
