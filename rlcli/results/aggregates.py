"""Aggregates: statistics of groups over environments and seeds, with intervals.

After (Agarwal et al., 2021), https://arxiv.org/abs/2108.13264. The scores of a group
are a list with an array `[seeds]` for each environment, and each environment counts
equally. Intervals are 95 % percentile intervals of a stratified bootstrap: the seeds of
each environment are resampled separately.

A resample is how often it contains each seed, so every statistic is a function of
counts, `[resamples, seeds]` for each environment, and all resamples are one product of
matrices. The estimate itself is that of the counts 1.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rlcli.runs.statistics import remember, resample_counts

Scores = Sequence[np.ndarray]  # [seeds] of each environment
Counts = Sequence[np.ndarray]  # [resamples, seeds] of each environment
Statistic = Callable[[Scores, Counts], np.ndarray]


class Estimate(NamedTuple):
    """A statistic and its interval; None if an environment has a single seed."""

    value: float
    ci95: tuple[float, float] | None


@np.errstate(over="ignore", invalid="ignore")  # sums of the largest floats are inf
def estimate(statistic: Statistic, scores: Scores) -> Estimate:
    """A statistic of scores with its interval; nan if a score is not finite."""
    scores = [np.sort(each) for each in scores]  # the order of seeds has no meaning
    once = [np.ones((1, len(each))) for each in scores]
    if not _is_finite(scores):
        return Estimate(np.nan, None)
    value = float(statistic(scores, once)[0])
    if min(map(len, scores)) < 2:
        return Estimate(value, None)
    return Estimate(value, _interval(statistic(scores, _resample(scores))))


def mean(scores: Scores, counts: Counts) -> np.ndarray:
    """The mean over environments of the mean over seeds."""
    return np.mean(_means(scores, counts), axis=0)


def median_over_seeds(scores: Scores, counts: Counts) -> np.ndarray:
    """The median of all seeds of a single environment, with sorted scores."""
    ((values,), (weights,)) = scores, counts
    n, ranks = len(values), np.cumsum(weights, axis=-1)
    middle = ((n - 1) // 2, n // 2)
    first, second = (values[np.argmax(ranks > rank, axis=-1)] for rank in middle)
    return (first + second) / 2


def median_over_environments(scores: Scores, counts: Counts) -> np.ndarray:
    """The median over environments of the mean over seeds."""
    return np.median(_means(scores, counts), axis=0)


def iqm(scores: Scores, counts: Counts) -> np.ndarray:
    """The mean of the middle half of all scores (IQM), exact for any number of seeds.

    Scores at the edges of the middle half count in part, as in `statistics.iqm`.
    """
    values = np.concatenate(scores)
    order = np.argsort(values, kind="stable")
    shares = [each / each.shape[1] / len(counts) for each in counts]
    weights = np.concatenate(shares, axis=-1)[:, order]
    above = np.cumsum(weights, axis=-1)
    middle = np.minimum(above, 0.75) - np.maximum(above - weights, 0.25)
    found = np.clip(middle, 0, None) @ values[order] / 0.5
    return np.clip(found, values.min(), values.max())  # equal values stay exact


def optimality_gap(scores: Scores, counts: Counts) -> np.ndarray:
    """How far scores are below 1 on average; scores above 1 count as 1."""
    return mean([np.maximum(1 - each, 0) for each in scores], counts)


def fraction_above(threshold: float) -> Statistic:
    """The fraction of seeds with a score above a threshold: a performance profile."""
    return lambda scores, counts: mean([each > threshold for each in scores], counts)


@remember
def estimate_improvement(first: Scores, second: Scores) -> Estimate:
    """The probability that a seed of the first group has a higher score.

    The mean over environments of P(X > Y) + P(X = Y) / 2, the statistic of Mann and
    Whitney.
    """
    if not _is_finite([*first, *second]):
        return Estimate(np.nan, None)
    pairs = [*zip(map(np.sort, first), map(np.sort, second), strict=True)]
    wins = [
        (x[:, None] > y) + (x[:, None] == y) / 2 for x, y in pairs
    ]  # [seeds, seeds] of each environment
    value = float(np.mean([each.mean() for each in wins]))
    if min(map(len, itertools.chain(first, second))) < 2:
        return Estimate(value, None)
    shares = [
        np.sum((xs @ each / each.shape[0]) * (ys / each.shape[1]), axis=-1)
        for xs, each, ys in zip(
            _resample(first), wins, _resample(second, role=1), strict=True
        )
    ]
    return Estimate(value, _interval(np.mean(shares, axis=0)))


def _means(scores: Scores, counts: Counts) -> list[np.ndarray]:
    """The mean over seeds of each environment and resample."""
    return [
        weights @ values / len(values)
        for values, weights in zip(scores, counts, strict=True)
    ]


def _resample(scores: Scores, role: int = 0) -> list[np.ndarray]:
    """The counts of resamples; groups that are resampled together differ in role."""
    return [
        resample_counts(len(each), seed=(role, index))
        for index, each in enumerate(scores)
    ]


def _interval(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def _is_finite(scores: Scores) -> bool:
    return all(np.isfinite(each).all() for each in scores)
