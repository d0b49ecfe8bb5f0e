"""Categorical distributions: over one or several discrete values, bits and atoms.

Among them the discretized Box, each of whose entries is divided into bins of equal
width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Int32

from rlcli import spaces
from rlcli.distributions import logits as tables
from rlcli.distributions.family import Distribution, Event, Parameters, Shape
from rlcli.types import Array, Key
from rlcli.xla.indexing import select_index
from rlcli.xla.numeric_limits import FLOAT32_TINY

NoiseSampler = Callable[[Key, tuple[int, int]], Float[Array, "B size"]]


class _Outcomes(NamedTuple):
    """The outcomes of independent categoricals: a row of n points for each."""

    # The outcomes as numbers, increasing.
    points: Float[np.ndarray, "entries n"]
    counts: Int[np.ndarray, "entries"]  # the number of valid outcomes of each row
    # indices [..., entries] -> numbers
    from_index: Callable[[Array], Array]
    to_index: Callable[[Array], Array]  # the inverse of `from_index`
    to_logits: Callable[[Parameters], Float[Array, "*batch entries n"]]
    # The inverse of `to_logits`.
    to_parameters: Callable[[Float[Array, "*batch entries n"]], Parameters]


def categorical(actions: int, start: int = 0, dtype: Any = np.int32) -> Distribution:
    """Categorical distribution over `start … start + actions − 1`, with logits.

    Sampled by the Gumbel-max trick: `argmax(logits + g)` (Gumbel, 1954). `mean` and
    `affine` treat outcomes as numbers. `affine` distributes the mass of a point between
    two outcomes to both, and assigns mass beyond the ends to the ends.
    """
    distribution = multi_discrete(np.array(actions), start, dtype)
    return distribution._replace(name="categorical")


def multi_discrete(nvec: Any, start: Any = 0, dtype: Any = np.int32) -> Distribution:
    """Independent categorical distributions: xᵢ is in `startᵢ … startᵢ + nᵢ − 1`.

        p(x) = Π pᵢ(xᵢ)

    `nvec` and `start` are arrays of the shape of x; the parameters are the logits of
    the first entry, then those of the second, and so on.
    """
    shape = np.shape(nvec)
    counts = np.asarray(nvec, np.int64).ravel()
    starts = np.broadcast_to(np.asarray(start, np.int64), shape).ravel()
    first = starts.astype(np.int32)
    size, longest = int(counts.sum()), int(counts.max(initial=1))
    # One row per entry, padded to the longest: logits of the padding are −∞.
    column = np.arange(longest)
    exists = column < counts[:, None]
    begin = np.cumsum(counts) - counts
    position = np.where(exists, begin[:, None] + column, 0)

    def table(parameters: Parameters) -> Float[Array, "*batch entries n"]:
        if exists.all():
            return parameters.reshape(*parameters.shape[:-1], len(counts), longest)
        return jnp.where(exists, parameters[..., position], -jnp.inf)

    outcomes = _Outcomes(
        points=(starts[:, None] + column).astype(np.float32),
        counts=counts,
        from_index=lambda index: (first + index).astype(dtype),
        to_index=lambda x: x.astype(jnp.int32) - first,
        to_logits=table,
        to_parameters=lambda rows: rows[..., exists],
    )
    return _independent_categoricals(
        "multi_discrete", shape, size, jax.random.gumbel, outcomes
    )


def multi_binary(shape: Shape, dtype: Any = np.int8) -> Distribution:
    """Independent Bernoulli distributions; a parameter is the logit of 1.

        p(x) = Π σ(lᵢ)^xᵢ σ(−lᵢ)^(1 − xᵢ)

    Sampled with logistic noise: 1 if l + g > 0. `affine` distributes the mass of a
    point between 0 and 1 to both, and assigns mass beyond them to the nearer one.
    """
    size = Event(shape).size

    def table(parameters: Parameters) -> Float[Array, "*batch entries n"]:
        return jnp.stack([jnp.zeros_like(parameters), parameters], axis=-1)

    outcomes = _Outcomes(
        points=np.tile(np.array([0.0, 1.0], np.float32), (size, 1)),
        counts=np.full(size, 2),
        from_index=lambda index: index.astype(dtype),
        to_index=lambda x: x.astype(jnp.int32),
        to_logits=table,
        to_parameters=lambda rows: rows[..., 1] - rows[..., 0],
    )
    return _independent_categoricals(
        "multi_binary", shape, size, jax.random.logistic, outcomes
    )


def atoms(low: float, high: float, number: int) -> Distribution:
    """Categorical distribution over equally spaced atoms from low to high.

    The parameters are logits, as in C51 (Bellemare et al., 2017,
    https://arxiv.org/abs/1707.06887); x is `[...]`. `log_prob` is that of the nearest
    atom. `affine` projects onto the atoms, which preserves the mean if no mass leaves
    [low, high].
    """
    if number < 2 or not low < high:
        raise ValueError(
            f"expected at least 2 atoms from low to high, got {number} from {low} to "
            f"{high}"
        )
    points = np.linspace(low, high, number, dtype=np.float32)
    width = (high - low) / (number - 1)

    def place(x: Float[Array, "*batch"]) -> Int32[Array, "*batch"]:
        nearest = jnp.round((x - low) / width)
        return jnp.clip(nearest, 0, number - 1).astype(jnp.int32)

    outcomes = _Outcomes(
        points=points[None],
        counts=np.array([number]),
        from_index=lambda index: jnp.asarray(points)[index],
        to_index=place,
        to_logits=lambda parameters: parameters[..., None, :],
        to_parameters=lambda rows: rows[..., 0, :],
    )
    return _independent_categoricals("atoms", (), number, jax.random.gumbel, outcomes)


def _independent_categoricals(
    name: str, shape: Shape, size: int, noise: NoiseSampler, outcomes: _Outcomes
) -> Distribution:
    """Builds the family. A sample is the mode of `parameters + noise`."""
    points, table, event = outcomes.points, outcomes.to_logits, Event(shape)
    last = points[np.arange(len(points)), outcomes.counts - 1]

    def best(parameters: Parameters) -> Array:
        return event.unflatten(
            outcomes.from_index(jnp.argmax(table(parameters), axis=-1))
        )

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        index = outcomes.to_index(event.flatten(jnp.asarray(x)))
        return jnp.sum(tables.log_prob(table(parameters), index), axis=-1)

    def sum_over(function: Callable[..., Array]) -> Callable[..., Array]:
        return lambda *parameters: jnp.sum(function(*map(table, parameters)), axis=-1)

    def mean(parameters: Parameters) -> Array:
        return event.unflatten(tables.expectation(table(parameters), points))

    def affine(parameters, scale, shift):
        scale, shift = (event.broadcast(value)[..., None] for value in (scale, shift))
        new_points = jnp.clip(shift + scale * points, points[:, :1], last[:, None])
        return outcomes.to_parameters(
            tables.project(table(parameters), new_points, points)
        )

    return Distribution(
        name=name,
        size=size,
        draw=lambda key, batch: noise(key, (batch, size)),
        sample=lambda parameters, noise: best(parameters + noise),
        mode=best,
        log_prob=log_prob,
        entropy=sum_over(tables.entropy),
        kl=sum_over(tables.kl),
        mean=mean,
        cross_entropy=sum_over(tables.cross_entropy),
        affine=affine,
    )


def discretized_box(space: gymnasium.spaces.Box, bins: int = 11) -> Distribution:
    """Histogram over each entry of a bounded Box: one logit per bin.

        p(x) = Π p[bin of xᵢ] / (width of a bin)

    After Tang & Agrawal (2020, https://arxiv.org/abs/1901.10500), whose bins are
    points. Here x is uniform within a bin, so that samples reach the bounds and the
    density integrates to 1 over the Box. Sampled by inverting the cumulative
    distribution function. `mode` is the middle of the most likely bin. `affine` moves
    the middles and distributes their mass to the nearest two bins.
    """
    if not np.issubdtype(space.dtype, np.floating) or not space.is_bounded():
        raise TypeError(f"expected a Box of floats with bounds, got {space}")
    if bins < 2:
        raise ValueError(f"expected at least 2 bins, got {bins}")
    event, dtype = Event(space.shape), spaces.dtype(space)
    shape, count = space.shape, event.size
    bounds = [bound.astype(np.float64) for bound in spaces.bounds(space)]
    step = (bounds[1] - bounds[0]) / bins
    log_step = float(np.sum(np.log(step)))
    low, high, step = (bound.astype(np.float32) for bound in (*bounds, step))
    histogram = multi_discrete(np.full(shape, bins))  # over the indices of bins

    def point(index: Array) -> Array:
        """Maps a bin position to the Box; the middle of bin k is at k + ½."""
        return jnp.clip(low + step * index, low, high)

    def sample(parameters: Parameters, noise: Array) -> Array:
        p = jax.nn.softmax(parameters.reshape(*parameters.shape[:-1], count, bins))
        cdf = jnp.cumsum(p, axis=-1)
        x_cdf = noise * cdf[..., -1]  # the total is not exactly 1
        index = jnp.sum(cdf <= x_cdf[..., None], axis=-1)
        index = jnp.minimum(index, bins - 1)  # rounding may exceed the last bin
        bin_end_cdf, mass = (select_index(row, index) for row in (cdf, p))
        # The fraction of the bin that lies above x.
        above = jnp.clip((bin_end_cdf - x_cdf) / jnp.maximum(mass, FLOAT32_TINY), 0, 1)
        return point(event.unflatten(index + 1 - above)).astype(dtype)

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        place = (jnp.asarray(x).astype(jnp.float32) - low) / step
        index = jnp.clip(place, 0, bins - 1).astype(jnp.int32)
        return histogram.log_prob(parameters, index) - log_step

    def affine(parameters, scale, shift):
        middle = low + step / 2  # of the first bin
        shift = (shift + scale * middle - middle) / step
        return histogram.affine(parameters, scale, shift)

    return histogram._replace(
        name="discretized",
        draw=lambda key, batch: jax.random.uniform(key, (batch, count)),
        sample=sample,
        mode=lambda parameters: point(histogram.mode(parameters) + 0.5).astype(dtype),
        log_prob=log_prob,
        entropy=lambda parameters: histogram.entropy(parameters) + log_step,
        mean=lambda parameters: point(histogram.mean(parameters) + 0.5),
        cross_entropy=lambda parameters, other: (
            histogram.cross_entropy(parameters, other) + log_step
        ),
        affine=affine,
    )
