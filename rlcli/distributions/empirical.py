"""The empirical quantile distribution, defined by equally likely values."""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from rlcli.distributions.family import Distribution, Event, Parameters, PerSample, Shape
from rlcli.types import Array
from rlcli.xla.indexing import select_index
from rlcli.xla.numeric_limits import FLOAT32_TINY

PerEntry: TypeAlias = Float[Array, "*batch entries"]
Points: TypeAlias = Float[Array, "*batch entries m"]
_MIN_GAP = 1e-6  # minimum gap of two quantiles, relative to 1 + the largest


class _PiecewiseDensity(NamedTuple):
    """A piecewise density for each entry."""

    knots: Float[Array, "*batch entries n"]  # increasing
    gaps: Float[Array, "*batch entries n-1"]  # between the knots
    first: PerEntry
    last: PerEntry
    tail: PerEntry  # mean length of each tail
    half: float  # 1/(2n): the mass of each tail


def quantile_distribution(number: int, shape: Shape = ()) -> Distribution:
    """Quantile distribution with n quantiles at the quantile midpoints.

        F(θᵢ) = (i + ½) / n,  i = 0 … n − 1

    The parameters are the quantiles of the first entry of x, in any order, then those
    of the second, and so on, as in QR-DQN (Dabney et al., 2018,
    https://arxiv.org/abs/1710.10044). F is linear between neighbours. Each tail has
    mass 1/(2n) and an exponential density with a mean length of half the mean gap, so
    that the mean is that of the quantiles. The density is finite everywhere, because it
    treats the gap of two quantiles as at least 10⁻⁶ (1 + max |θ|). All functions have
    closed forms. `mode` is the middle of the narrowest gap; `affine` is exact.
    """
    if number < 2:
        raise ValueError(f"expected at least 2 quantiles, got {number}")
    event, count = Event(shape), Event(shape).size

    def table(parameters: Parameters) -> Float[Array, "*batch entries n"]:
        return jnp.asarray(parameters).reshape(*parameters.shape[:-1], count, number)

    def steps(parameters: Parameters) -> _PiecewiseDensity:
        return _density(table(parameters))

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        return _log_density(steps(parameters), event.flatten(jnp.asarray(x)))

    def cross_entropy(parameters: Parameters, other: Parameters) -> PerSample:
        return _cross_entropy(steps(parameters), steps(other))

    def entropy(parameters: Parameters) -> PerSample:
        return _entropy(steps(parameters))

    def affine(parameters, scale, shift):
        scale, shift = (event.broadcast(value)[..., None] for value in (scale, shift))
        new_table = shift + scale * table(parameters)
        return new_table.reshape(*new_table.shape[:-2], count * number)

    return Distribution(
        name="quantiles",
        size=count * number,
        # Above 0, so that F⁻¹ is finite.
        draw=lambda key, batch: jax.random.uniform(
            key, (batch, count), minval=FLOAT32_TINY
        ),
        sample=lambda parameters, noise: event.unflatten(
            _inverse_cdf(steps(parameters), noise)
        ),
        mode=lambda parameters: event.unflatten(_mode(steps(parameters))),
        log_prob=log_prob,
        entropy=entropy,
        kl=lambda parameters, other: (
            cross_entropy(parameters, other) - entropy(parameters)
        ),
        mean=lambda parameters: event.unflatten(jnp.mean(table(parameters), axis=-1)),
        cross_entropy=cross_entropy,
        affine=affine,
    )


def _density(table: Float[Array, "*batch entries n"]) -> _PiecewiseDensity:
    """Returns the piecewise density of the quantiles."""
    sorted_table = jnp.sort(table, axis=-1)
    largest = jnp.max(jnp.abs(sorted_table), axis=-1, keepdims=True)
    min_gap = _MIN_GAP * (1 + jax.lax.stop_gradient(largest))
    gaps = jnp.maximum(jnp.diff(sorted_table, axis=-1), min_gap)
    first = sorted_table[..., :1]
    knots = jnp.concatenate([first, first + jnp.cumsum(gaps, axis=-1)], axis=-1)
    tail, half = 0.5 * jnp.mean(gaps, axis=-1), 0.5 / table.shape[-1]
    return _PiecewiseDensity(knots, gaps, knots[..., 0], knots[..., -1], tail, half)


def _inverse_cdf(p: _PiecewiseDensity, noise: PerEntry) -> PerEntry:
    """Evaluates F⁻¹ at `noise`, one number in (0, 1) for each entry."""
    number = p.knots.shape[-1]
    place = jnp.clip(noise * number - 0.5, 0, number - 1)
    index = jnp.minimum(place.astype(jnp.int32), number - 2)
    x = _select(p.knots, index) + _select(p.gaps, index) * (place - index)
    lower = p.tail * jnp.log(jnp.minimum(noise, p.half) / p.half)
    upper = p.tail * jnp.log(jnp.minimum(1 - noise, p.half) / p.half)
    return x + lower - upper


def _log_density(p: _PiecewiseDensity, x: PerEntry) -> PerSample:
    number = p.knots.shape[-1]
    index = jnp.sum(x[..., None] >= p.knots, axis=-1) - 1
    inside = -jnp.log(number * _select(p.gaps, jnp.clip(index, 0, number - 2)))
    excess = jnp.maximum(p.first - x, 0) + jnp.maximum(x - p.last, 0)
    outside = jnp.log(p.half / p.tail) - excess / p.tail
    return jnp.sum(jnp.where(excess > 0, outside, inside), axis=-1)


def _mode(p: _PiecewiseDensity) -> PerEntry:
    index = jnp.argmin(p.gaps, axis=-1)
    return _select(p.knots, index) + 0.5 * _select(p.gaps, index)


def _entropy(p: _PiecewiseDensity) -> PerSample:
    number = p.knots.shape[-1]
    inside = jnp.sum(jnp.log(number * p.gaps), axis=-1) / number
    return jnp.sum(inside + 2 * p.half * (1 + jnp.log(p.tail / p.half)), axis=-1)


def _cross_entropy(p: _PiecewiseDensity, q: _PiecewiseDensity) -> PerSample:
    """E_p[−log q]; −log q is constant between knots and linear in the tails."""
    number = q.knots.shape[-1]
    cdf, shortfall = _cdf(p, q.knots), _shortfall(p, q.knots)
    inside = jnp.sum(jnp.diff(cdf, axis=-1) * jnp.log(number * q.gaps), axis=-1)
    tail_mass = 1 - cdf[..., -1] + cdf[..., 0]
    # The expected excess E[(x − b)₊] is E[x] − b + E[(b − x)₊].
    excess = jnp.mean(p.knots, axis=-1) - q.last + shortfall[..., -1]
    outside = (
        tail_mass * jnp.log(q.tail / q.half) + (shortfall[..., 0] + excess) / q.tail
    )
    return jnp.sum(inside + outside, axis=-1)


def _select(
    rows: Float[Array, "*batch entries n"], index: Int[Array, "*batch entries"]
) -> PerEntry:
    return select_index(rows, index)


def _cdf(p: _PiecewiseDensity, x: Points) -> Points:
    """Evaluates F at each `x`."""
    low, high, tail = (value[..., None] for value in (p.first, p.last, p.tail))
    lower = jnp.exp(jnp.minimum(x - low, 0) / tail)
    upper = 1 - jnp.exp(-jnp.maximum(x - high, 0) / tail)
    return p.half * (lower + upper + 2 * jnp.sum(_gap_fraction(p, x), axis=-1))


def _shortfall(p: _PiecewiseDensity, x: Points) -> Points:
    """E[(x − X)₊], the expected shortfall of X below each `x`."""
    low, high, tail = (value[..., None] for value in (p.first, p.last, p.tail))
    lower = jnp.maximum(x - low, 0) + tail * jnp.exp(jnp.minimum(x - low, 0) / tail)
    excess = jnp.maximum(x - high, 0)
    upper = excess - tail * (1 - jnp.exp(-excess / tail))
    fraction, gap_ends = _gap_fraction(p, x), p.knots[..., None, 1:]
    beyond = jnp.maximum(x[..., None] - gap_ends, 0)
    inside = 0.5 * p.gaps[..., None, :] * fraction**2 + beyond
    return p.half * (lower + upper + 2 * jnp.sum(inside, axis=-1))


def _gap_fraction(
    p: _PiecewiseDensity, x: Points
) -> Float[Array, "*batch entries m gaps"]:
    """The fraction of each gap that lies below each `x`."""
    fraction = (x[..., None] - p.knots[..., None, :-1]) / p.gaps[..., None, :]
    return jnp.clip(fraction, 0, 1)
