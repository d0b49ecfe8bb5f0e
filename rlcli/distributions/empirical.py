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

_APART = 1e-6  # how near two quantiles may be, in the size of the largest (plus one)
_TINY = float(np.finfo(np.float32).tiny)


class _Steps(NamedTuple):
    """A density in pieces, one for each entry: `[..., entries]`."""

    knots: Array  # [..., entries, n], going up
    gaps: Array  # [..., entries, n − 1] between them
    first: Array
    last: Array
    tail: Array  # the mean length of what lies beyond either


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
    count, half = size_of(shape), 0.5 / number  # half: the mass beyond either end

    def table(parameters: Array) -> Array:
        return jnp.asarray(parameters).reshape(*parameters.shape[:-1], count, number)

    def steps(parameters: Array) -> _Steps:
        ordered = jnp.sort(table(parameters), axis=-1)
        largest = jnp.max(jnp.abs(ordered), axis=-1, keepdims=True)
        apart = _APART * (1 + jax.lax.stop_gradient(largest))
        gaps = jnp.maximum(jnp.diff(ordered, axis=-1), apart)
        first = ordered[..., :1]
        knots = jnp.concatenate([first, first + jnp.cumsum(gaps, axis=-1)], axis=-1)
        tail = 0.5 * jnp.mean(gaps, axis=-1)
        return _Steps(knots, gaps, knots[..., 0], knots[..., -1], tail)

    def sample(parameters: Array, noise: Array) -> Array:
        known = steps(parameters)
        place = jnp.clip(noise * number - 0.5, 0, number - 1)
        index = jnp.minimum(place.astype(jnp.int32), number - 2)
        x = _at(known.knots, index) + _at(known.gaps, index) * (place - index)
        below = known.tail * jnp.log(jnp.minimum(noise, half) / half)
        above = known.tail * jnp.log(jnp.minimum(1 - noise, half) / half)
        return shaped(x + below - above, shape)

    def log_prob(parameters: Array, x: Array) -> Array:
        known, x = steps(parameters), flattened(jnp.asarray(x), shape)
        index = jnp.sum(x[..., None] >= known.knots, axis=-1) - 1
        inside = -jnp.log(number * _at(known.gaps, jnp.clip(index, 0, number - 2)))
        beyond = jnp.maximum(known.first - x, 0) + jnp.maximum(x - known.last, 0)
        outside = jnp.log(half / known.tail) - beyond / known.tail
        return jnp.sum(jnp.where(beyond > 0, outside, inside), axis=-1)

    def mode(parameters: Array) -> Array:
        known = steps(parameters)
        index = jnp.argmin(known.gaps, axis=-1)
        middle = _at(known.knots, index) + 0.5 * _at(known.gaps, index)
        return shaped(middle, shape)

    def entropy(parameters: Array) -> Array:
        known = steps(parameters)
        inside = jnp.sum(jnp.log(number * known.gaps), axis=-1) / number
        return jnp.sum(inside + 2 * half * (1 + jnp.log(known.tail / half)), axis=-1)

    def cross_entropy(parameters: Array, other: Array) -> Array:
        """−log q is constant between its knots, and goes up evenly beyond them."""
        p, q = steps(parameters), steps(other)
        reached, excess = _reached(p, q.knots, half), _short(p, q.knots, half)
        inside = jnp.sum(jnp.diff(reached, axis=-1) * jnp.log(number * q.gaps), -1)
        beyond = 1 - reached[..., -1] + reached[..., 0]
        # E[(x − b)₊] is E[x] − b + E[(b − x)₊]
        over = jnp.mean(p.knots, axis=-1) - q.last + excess[..., -1]
        outside = beyond * jnp.log(q.tail / half) + (excess[..., 0] + over) / q.tail
        return jnp.sum(inside + outside, axis=-1)

    def affine(parameters: Array, scale: Array, shift: Array) -> Array:
        scale, shift = (entries(each, shape)[..., None] for each in (scale, shift))
        moved = shift + scale * table(parameters)
        return moved.reshape(*moved.shape[:-2], count * number)

    return Distribution(
        name="quantiles",
        size=count * number,
        draw=lambda key, batch: jax.random.uniform(key, (batch, count), minval=_TINY),
        sample=sample,
        mode=mode,
        log_prob=log_prob,
        entropy=entropy,
        kl=lambda each, other: cross_entropy(each, other) - entropy(each),
        mean=lambda parameters: shaped(jnp.mean(table(parameters), axis=-1), shape),
        cross_entropy=cross_entropy,
        affine=affine,
    )


def _at(rows: Array, index: Array) -> Array:
    return jnp.take_along_axis(rows, index[..., None], axis=-1)[..., 0]


def _reached(p: _Steps, x: Array, half: float) -> Array:
    """F(x) for each of `x` `[..., entries, m]`."""
    low, high, tail = (each[..., None] for each in (p.first, p.last, p.tail))
    below = jnp.exp(jnp.minimum(x - low, 0) / tail)
    above = 1 - jnp.exp(-jnp.maximum(x - high, 0) / tail)
    return half * (below + above + 2 * jnp.sum(_share(p, x), axis=-1))


def _short(p: _Steps, x: Array, half: float) -> Array:
    """E[(x − X)₊], by how much X falls short of each `x` on average."""
    low, high, tail = (each[..., None] for each in (p.first, p.last, p.tail))
    below = jnp.maximum(x - low, 0) + tail * jnp.exp(jnp.minimum(x - low, 0) / tail)
    beyond = jnp.maximum(x - high, 0)
    above = beyond - tail * (1 - jnp.exp(-beyond / tail))
    share, ends = _share(p, x), p.knots[..., None, 1:]
    within = 0.5 * p.gaps[..., None, :] * share**2 + jnp.maximum(x[..., None] - ends, 0)
    return half * (below + above + 2 * jnp.sum(within, axis=-1))


def _share(p: _Steps, x: Array) -> Array:
    """How much of each gap lies below each `x`: `[..., entries, m, n − 1]`."""
    begun = (x[..., None] - p.knots[..., None, :-1]) / p.gaps[..., None, :]
    return jnp.clip(begun, 0, 1)
