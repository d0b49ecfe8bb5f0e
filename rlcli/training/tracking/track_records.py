"""Track records: what trackers get from `metrics.jsonl`, and how far each one is."""

import inspect
import math
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcli import registry
from rlcli.monitor.lines import group_by_point
from rlcli.recipe import Part
from rlcli.recipe.grammar import to_plain
from rlcli.runs.files import check_fields, read_json, to_json, write_json
from rlcli.runs.metrics import CLOCK_FIELDS
from rlcli.trackers import Record

Row = Mapping[str, Any]

MAX_SEEDS = 20  # of a run whose seeds are also logged one by one
RETURNS = "evaluation/returns"  # the histogram of the returns of an evaluation
_NAMES = {
    "ep": "train/episodes",
    "G": "train/return",
    "t": "train/length",
    "avg_G": "train/average_return",
    "avg_r": "train/average_reward",
    "mean": "evaluation/return",
    "std": "evaluation/return_std",
    "min": "evaluation/return_min",
    "max": "evaluation/return_max",
    "length": "evaluation/length",
    "steps_per_second": "speed/steps_per_second",
    "updates_per_second": "speed/updates_per_second",
}
_SPREAD = ("train/average_return", "evaluation/return")  # also with their std
_OMITTED = frozenset(("T", "seed", "evaluation", "episodes", "frozen", *CLOCK_FIELDS))
_NOTHING: Mapping[str, Any] = {}


class Results(NamedTuple):
    """The results of a chunk of a run."""

    rows: Sequence[Row]  # of metrics and evaluations, in order of their steps
    histograms: Sequence[Mapping[str, np.ndarray]] = ()  # of each seed, at the end
    films: Mapping[str, Path] = _NOTHING  # of the first seed, at the end


def make_records(results: Results) -> Iterator[Record]:
    """The records of a chunk, in order of their steps.

    A record of a run with several seeds has the means over the seeds that are not
    frozen. Up to `MAX_SEEDS` seeds have records of their own as well.
    """
    points = group_by_point(results.rows)
    for index, rows in enumerate(points):
        is_last = index == len(points) - 1
        histograms = results.histograms if is_last else ()
        films = {**results.films} if is_last else _NOTHING
        yield from _point_records(rows, histograms, films)


def _point_records(
    rows: Sequence[Row],
    histograms: Sequence[Mapping[str, np.ndarray]],
    films: Mapping[str, Path],
) -> Iterator[Record]:
    """The records of one step; a row of metrics and one of an evaluation are merged."""
    scalars: dict[int, dict[str, float]] = {}
    frozen: set[int] = set()
    for row in rows:
        scalars.setdefault(row["seed"], {}).update(_scalars(row))
        frozen |= {row["seed"]} if row.get("frozen") else set()
    step, now = rows[0]["T"], rows[0].get("time") or time.time()
    seeds = [*scalars]
    finite = map(_finite_values, histograms)
    values = dict(zip(seeds, finite, strict=True) if histograms else ())
    if len(seeds) == 1:
        own = values.get(seeds[0], _NOTHING)
        yield Record(step, None, now, scalars[seeds[0]], own, films)
        return
    active = [seed for seed in seeds if seed not in frozen] or seeds
    pooled = [
        values[seed][RETURNS] for seed in active if RETURNS in values.get(seed, ())
    ]
    merged = {RETURNS: np.concatenate(pooled)} if pooled else {}
    means = _mean_scalars([scalars[seed] for seed in active])
    yield Record(step, None, now, means, merged, films)
    if len(seeds) <= MAX_SEEDS:
        for seed in seeds:
            own = values.get(seed, _NOTHING)
            yield Record(step, seed, now, scalars[seed], own, _NOTHING)


def _scalars(row: Row) -> dict[str, float]:
    """The finite numbers of a row, by their names in trackers."""
    named = {
        _NAMES.get(name, f"train/{name}"): value
        for name, value in row.items()
        if name in _NAMES or name not in _OMITTED
    }
    for name, value in row.get("evaluation", {}).items():
        if name in _NAMES:
            named[_NAMES[name]] = value
    return {
        name: float(value)
        for name, value in named.items()
        if isinstance(value, Real) and math.isfinite(value)
    }


def _finite_values(histograms: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The finite values of each histogram that has some, `[n]`."""
    finite = {name: values[np.isfinite(values)] for name, values in histograms.items()}
    return {name: values for name, values in finite.items() if values.size}


def _mean_scalars(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each scalar over the seeds that have it, and the std of returns."""
    names = dict.fromkeys(name for scalars in seeds for name in scalars)
    columns = {name: [item[name] for item in seeds if name in item] for name in names}
    means = {name: float(np.mean(column)) for name, column in columns.items()}
    spreads = {
        f"{name}_std_over_seeds": float(np.std(columns[name]))
        for name in _SPREAD
        if name in columns
    }
    return means | spreads


_HINT = "restore it, or remove it: the trackers then get all rows again, as a new run"


class Marks:
    """The id of a run in its trackers, and the last step of each."""

    def __init__(self, path: Path) -> None:
        """Reads the file; an `RlcliError` if it is damaged."""
        self._path = path
        self._lock = threading.Lock()
        data = read_json(path, _HINT)
        fields = {"id": _is_id, "steps": _is_steps}
        check_fields(path, data, fields, _HINT, may_lack=not data)
        self.id: str = data.get("id") or uuid.uuid4().hex[:16]
        self._steps: dict[str, int] = data.get("steps") or {}

    def step(self, key: str) -> int:
        """The last step that a tracker has; 0 if it has none."""
        return self._steps.get(key, 0)

    def set_step(self, key: str, step: int) -> None:
        """Records the last step that a tracker has."""
        with self._lock:
            self._steps[key] = step
            write_json(self._path, {"id": self.id, "steps": self._steps})


def mark_key(part: Part) -> str:
    """The name of a tracker, and the options that differ from their defaults.

    With other options a tracker may send the results to another place, which has none.
    """
    factory = registry.find("tracker", part.name).factory
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(factory).parameters.items()
    }
    options = {
        name.removesuffix("_"): to_plain(value)
        for name, value in sorted(part.options.items())
        if name not in defaults or value != defaults[name]
    }
    return f"{part.name} {to_json(options)}" if options else part.name


def _is_id(value: Any) -> bool:
    # Trackers send it to their servers, in queries and addresses.
    return isinstance(value, str) and re.fullmatch(r"[\w-]{1,64}", value) is not None


def _is_steps(value: Any) -> bool:
    """Whether a value is `{tracker: step}`."""
    return isinstance(value, dict) and all(
        type(step) is int and step >= 0 for step in value.values()
    )
