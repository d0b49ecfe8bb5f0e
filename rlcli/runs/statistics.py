"""Statistics: summarizes returns over episodes and seeds.

For few seeds, after (Agarwal et al., 2021), https://arxiv.org/abs/2108.13264: the
interquartile mean (IQM), which is robust to single outliers, and its bootstrap
interval. NumPy only.
"""

import copy
import functools
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

RESAMPLES = 2_000  # of every bootstrap interval of rlcli

Values = Sequence[float] | npt.NDArray[Any]
_Function = TypeVar("_Function", bound=Callable[..., Any])
_REMEMBERED = 512  # results of a function


def remember(function: _Function) -> _Function:
    """A function of arrays that keeps its latest results, by the content of its inputs.

    A page that is live computes the intervals of all groups again when one has changed.
    """
    results: OrderedDict[bytes, Any] = OrderedDict()

    @functools.wraps(function)
    def call(*inputs: Any, **options: Any) -> Any:
        key = _digest([inputs, sorted(options.items())])
        found = results.pop(key, None)
        if found is None:
            found = function(*inputs, **options)
        results[key] = found
        while len(results) > _REMEMBERED:
            results.popitem(last=False)
        return copy.deepcopy(found)

    return cast(_Function, call)


def _digest(value: Any) -> bytes:
    """A number that is equal for equal arrays, sequences and options only."""
    content = hashlib.blake2b(digest_size=16)
    if isinstance(value, np.ndarray):
        content.update(f"{value.dtype} {value.shape}".encode())
        content.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, list | tuple):
        content.update(b"".join(map(_digest, value)))
    else:
        content.update(repr(value).encode())
    return content.digest()


def iqm(values: Values, axis: int = -1) -> Any:
    """The interquartile mean (IQM) along `axis`: a float for `[n]`, else an array.

    The mean of the middle half of the sorted values, exact for any n: value i of n
    covers [i, i + 1], and its weight is the overlap with [n/4, 3n/4],

        IQM = Σᵢ wᵢ x₍ᵢ₎ / (n/2)        wᵢ = |[i, i + 1] ∩ [n/4, 3n/4]|

    It is the value itself for n = 1, and scipy's `trim_mean(x, 0.25)` if 4 divides n.
    Any value that is not finite, trimmed or not, makes the result nan.
    """
    ranked = np.sort(np.moveaxis(np.asarray(values, np.float64), axis, -1), axis=-1)
    if ranked.shape[-1] == 0:
        raise ValueError("expected at least one value, got none")
    finite = np.isfinite(ranked).all(axis=-1)
    weights = _iqm_weights(ranked.shape[-1])
    mean = np.nan_to_num(ranked) @ weights
    mean = np.clip(mean, ranked[..., 0], ranked[..., -1])  # equal values stay exact
    mean = np.where(finite, mean, np.nan)
    return float(mean) if mean.ndim == 0 else mean


def bounded_iqm(values: Values, *, worst: float) -> float:
    """The IQM of values of which up to a quarter may be `worst`, which is infinite.

    With more of them it is `worst`.
    """
    array = np.asarray(values, np.float64)
    finite = np.isfinite(array)
    if 4 * np.count_nonzero(~finite) > len(array):
        return worst
    # Those that are not finite have no weight; equal to the worst of the others, they
    # stay at their end of the order.
    end = array[finite].min() if worst < 0 else array[finite].max()
    return iqm(np.where(finite, array, end))


def _iqm_weights(n: int) -> npt.NDArray[np.float64]:
    """The weight of each of n sorted values in their interquartile mean."""
    edges = np.arange(n)
    coverage = np.minimum(edges + 1, 0.75 * n) - np.maximum(edges, 0.25 * n)
    return np.clip(coverage, 0.0, None) / (n / 2)


def bootstrap_ci95(values: Values, center: str = "iqm") -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the IQM, or `mean`, of `[n]`, n > 1.

    Resamples n values with replacement, `RESAMPLES` times; the interval contains the
    middle 95 % of the statistic of those samples. The same values, in any order, give
    the same interval. A single value has no interval.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or array.size < 2:
        raise ValueError(f"expected values of shape [n], n > 1, got {array.shape}")
    low, high = bootstrap_band(array[:, None], center)
    return float(low[0]), float(high[0])


@remember
def bootstrap_band(
    values: npt.NDArray[Any], center: str = "iqm"
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The intervals of the IQM or `mean` of each column of `[n, points]`.

    All columns use the same resamples. A column with a value that is not finite has the
    interval nan.
    """
    n = len(values)
    of_ranks = _iqm_weights(n) if center == "iqm" else np.full(n, 1 / n)
    finite = np.isfinite(values).all(axis=0)
    ranked = np.sort(np.where(finite, values, 0.0), axis=0)
    means = _bootstrap_weights(tuple(of_ranks)) @ ranked
    means = np.clip(means, ranked[0], ranked[-1])  # equal values stay exact
    interval = np.quantile(means, [0.025, 0.975], axis=0)
    low, high = np.where(finite, interval, np.nan)
    return low, high


@functools.lru_cache(maxsize=32)
def resample_counts(
    n: int, resamples: int = RESAMPLES, seed: tuple[int, ...] = (0,)
) -> npt.NDArray[np.int64]:
    """How often each of `resamples` samples of n values contains each, `[R, n]`.

    The samples are drawn with replacement and have n values.
    """
    sampled = np.random.default_rng(seed).integers(n, size=(resamples, n))
    cells = np.arange(resamples)[:, None] * n + sampled
    return np.bincount(cells.ravel(), minlength=resamples * n).reshape(resamples, n)


@functools.lru_cache(maxsize=16)
def _bootstrap_weights(of_ranks: Sequence[float]) -> npt.NDArray[np.float64]:
    """The weights of n sorted values in the statistic of each resample, `[R, n]`.

    `of_ranks` are the weights of n sorted values in the statistic. The result does not
    depend on the values: the order of a resample is that of its ranks.
    """
    n = len(of_ranks)
    counts = resample_counts(n)
    rows, ranks = np.divmod(np.repeat(np.arange(counts.size), counts.ravel()), n)
    weights = np.zeros(counts.shape)
    np.add.at(weights, (rows, ranks), np.tile(of_ranks, len(counts)))
    return weights


def summary(values: Values) -> dict[str, Any]:
    """Mean, IQM and its 95 % interval over seeds, with one value each.

    The interval of a single seed is None.
    """
    return {
        "mean": float(np.mean(np.asarray(values, np.float64))),
        "iqm": iqm(values),
        "ci95": list(bootstrap_ci95(values)) if len(values) > 1 else None,
    }


def statistics_row(
    statistics: Mapping[str, Any], index: tuple[int, ...]
) -> dict[str, Any]:
    """The episode statistics at an index, by the names of the TrainMonitor."""
    episodes = int(statistics["episodes"][index])
    if not episodes:
        return {"ep": 0}
    total = float(statistics["last_return"][index])
    length = float(statistics["last_length"][index])
    return {
        "ep": episodes,
        "G": total,
        "t": length,
        "avg_G": float(statistics["average_return"][index]),
        "avg_r": total / length,
        **{
            f"{prefix}{name}": float(value[index])
            for prefix in ("", "total_", "max_")
            for name, value in statistics[f"{prefix or 'last_'}info"].items()
            if not np.isnan(value[index])  # reported later
        },
    }


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a success rate from `n` independent trials (Wilson, 1927).

    `share` is the observed rate, in [0, 1].
    """
    z = 1.959964  # the 97.5 % quantile of the normal distribution
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    variance = share * (1 - share) / n + (z / (2 * n)) ** 2
    half = z * math.sqrt(variance) / (1 + z**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def info_summary(info: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """The mean and a 95 % interval of what each episode has logged, by name.

    The interval of values that are all 0 or 1 is Wilson's; that of others is the
    bootstrap interval of their mean.
    """

    def interval(values: np.ndarray) -> list[float] | None:
        if np.isin(values, (0, 1)).all():
            return list(wilson_interval(float(values.mean()), values.size))
        return [*bootstrap_ci95(values.ravel(), "mean")] if values.size > 1 else None

    return {
        name: {"mean": float(values.mean()), "ci95": interval(values)}
        for name, values in info.items()
    }


def episode_summary(
    returns: np.ndarray,
    lengths: np.ndarray,
    info: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> dict[str, Any]:
    """Summarizes the returns, lengths and logged numbers of one seed's episodes.

    The std divides by n, not by n − 1.
    """
    return {
        **{name: float(values.mean()) for name, values in info.items()},
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "length": float(lengths.mean()),
        "episodes": len(returns),
    }
