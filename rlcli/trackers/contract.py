"""Contract: three functions that send the results of a run to an experiment tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class TrackedRun(NamedTuple):
    """The run that a tracker follows."""

    id: str  # unique, and the same after a resume
    name: str  # `<recipe>/<time>`
    folder: Path
    recipe: Mapping[str, Any]  # with every default, as plain data
    seeds: tuple[int, ...]
    tags: tuple[str, ...]
    step: int  # the last step that the tracker has; 0 if it has none


class Record(NamedTuple):
    """Results at a step: of a seed, or of all seeds together."""

    step: int  # environment steps of one seed
    seed: int | None  # None: of all seeds, the mean of each scalar
    time: float  # Unix time
    scalars: Mapping[str, float]  # finite numbers, by name: `train/return`
    histograms: Mapping[str, np.ndarray]  # the values, whose distribution is logged
    films: Mapping[str, Path]  # GIFs


class Tracker(NamedTuple):
    """Sends the results of a run to an experiment tracker.

    The functions of a tracker are called in a thread of its own, one after the other.
    `start` returns what the others receive as their first argument. If one of them
    raises, the run prints a warning and continues without the tracker.
    """

    start: Callable[[TrackedRun], Any]
    log: Callable[[Any, Sequence[Record]], None]  # in order of their steps
    finish: Callable[[Any, str], None]  # with the status of the run: "finished", …


def prefix(record: Record) -> str:
    """What begins the names of a record, for trackers that log all seeds together."""
    return "" if record.seed is None else f"seed_{record.seed}/"


def flatten_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe by dotted key; lists become strings.

    >>> flatten_recipe({"tracer": {"n": 1}, "network": {"layers": [64, 64]}})
    {'tracer.n': 1, 'network.layers': '[64, 64]'}
    """
    return dict(_walk(recipe, ""))


def _walk(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _walk(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, bool | int | float | str):
        yield place, value
    else:
        yield place, str(value)
