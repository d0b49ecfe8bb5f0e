"""The empirical quantile distribution: what a number of equally likely values says."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.distributions.family import (
    Distribution,
    Shape,
    entries,
    flattened,
    shaped,
    size_of,
)
from rlcli.types import Array
from rlcli.xla.indexing import selected

_APART = 1e-6  # how near two quantiles may be, in the size of the largest (plus one)
_TINY = float(np.finfo(np.float32).tiny)


class _Steps(NamedTuple):
    """A density in pieces, one for each entry: `[..., entries]`."""

    knots: Array  # [..., entries, n], going up
    gaps: Array  # [..., entries, n − 1] between them
    first: Array
    last: Array
    tail: Array  # the mean length of what lies beyond either
    half: float  # 1/2n: the mass beyond either


def quantiles(number: int, shape: Shape = ()) -> Distribution:
    """The distribution with these quantiles, at the middles of n equal shares.

        F(θᵢ) = (i + ½) / n,  i = 0 … n − 1

    The parameters are the quantiles of the first entry of x, in any order, then those
    of the second, as of the values of QR-DQN (Dabney et al., 2018,
    https://arxiv.org/abs/1710.10044). Between neighbours F is a straight line; the
    1/2n beyond each end has an exponential density, half a mean gap long, so that the
    mean is that of the quantiles, and every density is finite everywhere. All is in
    closed form. In a density, quantiles that coincide count as a millionth of the
    largest apart. `mode` is the middle of the narrowest gap; `affine` is exact.
    """
    if number < 2:
        raise ValueError(f"expected at least 2 quantiles, got {number}")
    count = size_of(shape)

    def table(parameters: Array) -> Array:
        return jnp.asarray(parameters).reshape(*parameters.shape[:-1], count, number)

    def steps(parameters: Array) -> _Steps:
        return _steps(table(parameters))

    def log_prob(parameters: Array, x: Array) -> Array:
        return _log_density(steps(parameters), flattened(jnp.asarray(x), shape))

    def cross_entropy(parameters: Array, other: Array) -> Array:
        return _cross_entropy(steps(parameters), steps(other))

    def entropy(parameters: Array) -> Array:
        return _entropy(steps(parameters))

    def affine(parameters: Array, scale: Array, shift: Array) -> Array:
        scale, shift = (entries(each, shape)[..., None] for each in (scale, shift))
        moved = shift + scale * table(parameters)
        return moved.reshape(*moved.shape[:-2], count * number)

    return Distribution(
        name="quantiles",
        size=count * number,
        draw=lambda key, batch: jax.random.uniform(key, (batch, count), minval=_TINY),
        sample=lambda each, noise: shaped(_inverse(steps(each), noise), shape),
        mode=lambda parameters: shaped(_mode(steps(parameters)), shape),
        log_prob=log_prob,
        entropy=entropy,
        kl=lambda each, other: cross_entropy(each, other) - entropy(each),
        mean=lambda parameters: shaped(jnp.mean(table(parameters), axis=-1), shape),
        cross_entropy=cross_entropy,
        affine=affine,
    )


def _steps(table: Array) -> _Steps:
    """The density of the quantiles `[..., entries, n]`."""
    ordered = jnp.sort(table, axis=-1)
    largest = jnp.max(jnp.abs(ordered), axis=-1, keepdims=True)
    apart = _APART * (1 + jax.lax.stop_gradient(largest))
    gaps = jnp.maximum(jnp.diff(ordered, axis=-1), apart)
    first = ordered[..., :1]
    knots = jnp.concatenate([first, first + jnp.cumsum(gaps, axis=-1)], axis=-1)
    tail, half = 0.5 * jnp.mean(gaps, axis=-1), 0.5 / table.shape[-1]
    return _Steps(knots, gaps, knots[..., 0], knots[..., -1], tail, half)


def _inverse(p: _Steps, noise: Array) -> Array:
    """F⁻¹ of a number in (0, 1) for each entry."""
    number = p.knots.shape[-1]
    place = jnp.clip(noise * number - 0.5, 0, number - 1)
    index = jnp.minimum(place.astype(jnp.int32), number - 2)
    x = _at(p.knots, index) + _at(p.gaps, index) * (place - index)
    below = p.tail * jnp.log(jnp.minimum(noise, p.half) / p.half)
    above = p.tail * jnp.log(jnp.minimum(1 - noise, p.half) / p.half)
    return x + below - above


def _log_density(p: _Steps, x: Array) -> Array:
    number = p.knots.shape[-1]
    index = jnp.sum(x[..., None] >= p.knots, axis=-1) - 1
    inside = -jnp.log(number * _at(p.gaps, jnp.clip(index, 0, number - 2)))
    beyond = jnp.maximum(p.first - x, 0) + jnp.maximum(x - p.last, 0)
    outside = jnp.log(p.half / p.tail) - beyond / p.tail
    return jnp.sum(jnp.where(beyond > 0, outside, inside), axis=-1)


def _mode(p: _Steps) -> Array:
    index = jnp.argmin(p.gaps, axis=-1)
    return _at(p.knots, index) + 0.5 * _at(p.gaps, index)


def _entropy(p: _Steps) -> Array:
    number = p.knots.shape[-1]
    inside = jnp.sum(jnp.log(number * p.gaps), axis=-1) / number
    return jnp.sum(inside + 2 * p.half * (1 + jnp.log(p.tail / p.half)), axis=-1)


def _cross_entropy(p: _Steps, q: _Steps) -> Array:
    """−log q is constant between its knots, and goes up evenly beyond them."""
    number = q.knots.shape[-1]
    reached, excess = _reached(p, q.knots), _short(p, q.knots)
    inside = jnp.sum(jnp.diff(reached, axis=-1) * jnp.log(number * q.gaps), axis=-1)
    beyond = 1 - reached[..., -1] + reached[..., 0]
    # E[(x − b)₊] is E[x] − b + E[(b − x)₊]
    over = jnp.mean(p.knots, axis=-1) - q.last + excess[..., -1]
    outside = beyond * jnp.log(q.tail / q.half) + (excess[..., 0] + over) / q.tail
    return jnp.sum(inside + outside, axis=-1)


def _at(rows: Array, index: Array) -> Array:
    return selected(rows, index)


def _reached(p: _Steps, x: Array) -> Array:
    """F(x) for each of `x` `[..., entries, m]`."""
    low, high, tail = (each[..., None] for each in (p.first, p.last, p.tail))
    below = jnp.exp(jnp.minimum(x - low, 0) / tail)
    above = 1 - jnp.exp(-jnp.maximum(x - high, 0) / tail)
    return p.half * (below + above + 2 * jnp.sum(_share(p, x), axis=-1))


def _short(p: _Steps, x: Array) -> Array:
    """E[(x − X)₊], by how much X falls short of each `x` on average."""
    low, high, tail = (each[..., None] for each in (p.first, p.last, p.tail))
    below = jnp.maximum(x - low, 0) + tail * jnp.exp(jnp.minimum(x - low, 0) / tail)
    beyond = jnp.maximum(x - high, 0)
    above = beyond - tail * (1 - jnp.exp(-beyond / tail))
    share, ends = _share(p, x), p.knots[..., None, 1:]
    within = 0.5 * p.gaps[..., None, :] * share**2 + jnp.maximum(x[..., None] - ends, 0)
    return p.half * (below + above + 2 * jnp.sum(within, axis=-1))


def _share(p: _Steps, x: Array) -> Array:
    """How much of each gap lies below each `x`: `[..., entries, m, n − 1]`."""
    begun = (x[..., None] - p.knots[..., None, :-1]) / p.gaps[..., None, :]
    return jnp.clip(begun, 0, 1)
