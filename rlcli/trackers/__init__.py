"""Trackers: send the results of a run to an experiment tracker, such as W&B.

Belongs here: the part `tracker`, its contract of three functions, and one file per
library.
May import: the ground. Imports no JAX, and a library only when a run begins.
"""

import operator
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
    # The values whose distribution is logged; {} if `takes_histograms` is False, and of
    # evaluations that a slow tracker did not get in time.
    histograms: Mapping[str, np.ndarray]
    films: Mapping[str, Path]  # GIFs


class Tracker(NamedTuple):
    """Sends the results of a run to an experiment tracker.

    The functions of a tracker are called in a thread of its own, one after the other.
    `start` returns the first argument of the others. If one of them
    raises, the run prints a warning and continues without the tracker.
    """

    start: Callable[[TrackedRun], Any]
    log: Callable[[Any, Sequence[Record]], None]  # in order of their steps
    finish: Callable[[Any, str], None]  # with the status of the run: "finished", …
    takes_histograms: bool = True  # False: its records have none


def prefix(record: Record) -> str:
    """The prefix of a record's names, for trackers that log all seeds together."""
    return "" if record.seed is None else f"seed_{record.seed}/"


def flatten_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe by dotted key; lists become strings.

    >>> flatten_recipe({"tracer": {"n": 1}, "network": {"layers": [64, 64]}})
    {'tracer.n': 1, 'network.layers': '[64, 64]'}
    """
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flatten_config(recipe)
    }


def flatten_config(
    value: Any, place: str = "", *, is_leaf: Callable[[Mapping], bool] = operator.not_
) -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings by dotted key; by default empty ones are leaves."""
    if not isinstance(value, Mapping) or is_leaf(value):
        if place:
            yield place, value
        return
    for key, below in value.items():
        yield from flatten_config(
            below, f"{place}.{key}" if place else str(key), is_leaf=is_leaf
        )
