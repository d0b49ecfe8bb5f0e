"""Return by value: evaluated episodes, grouped by the numbers of their environment."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlcli.recipe.varied_options import RANGES
from rlcli.runs.statistics import summary
from rlcli.schedules import RandomNumber

_GROUPS = 5  # of a range of numbers; each has the same probability


def return_by_value(
    returns: np.ndarray, parameters: Mapping[str, np.ndarray], each: Mapping[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """The returns of episodes, grouped by each parameter of their environment.

    A range of numbers has five groups of equal probability; other values are a group
    each. Groups without an episode are left out, and so are levels.

    Args:
        returns: `[seeds, episodes]`.
        parameters: the numbers of each episode, by name, `[seeds, episodes]`.
        each: the recipe's `environment.each`, from which the numbers are.

    Returns:
        For each name a list of `{"from", "to", "episodes", "mean", "iqm", "ci95"}`, as
        in the `return` of an evaluation: statistics over the means of the seeds.
    """
    return {
        name: list(_group(returns, values, each[name]))
        for name, values in parameters.items()
        if name in each  # not a level, of which there may be thousands
    }


def _group(
    returns: np.ndarray, values: np.ndarray, source: Any
) -> Iterator[dict[str, Any]]:
    """The groups of one parameter, from the lowest values on."""
    if isinstance(source, RandomNumber) and source.distribution in RANGES:
        edges = source.quantile(np.linspace(0, 1, _GROUPS + 1))
        index = np.searchsorted(edges[1:-1], values, side="right")
        bounds = list(itertools.pairwise(edges))
    else:
        found, index = np.unique(values, return_inverse=True)
        index, bounds = index.reshape(values.shape), [(each, each) for each in found]
    for number, (low, high) in enumerate(bounds):
        inside = index == number
        means = [
            row[mask].mean()
            for row, mask in zip(returns, inside, strict=True)
            if mask.any()
        ]
        if means:
            # float32 has seven digits: more would be those of its rounding.
            bounds_of_group = {"from": float(f"{low:.7g}"), "to": float(f"{high:.7g}")}
            yield {**bounds_of_group, "episodes": int(inside.sum()), **summary(means)}
