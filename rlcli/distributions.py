"""Distributions over actions: pure functions of their parameters.

Sampling is split as everywhere: `draw(key, batch)` gives noise that depends on no
parameter, and `sample(parameters, noise)` turns it into an action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, ArrayTree, Key


class Distribution(NamedTuple):
    """A family of distributions; `parameters` are `[..., size]`."""

    name: str
    size: int  # parameters of one distribution
    draw: Callable[[Key, int], ArrayTree]  # (key, batch) -> noise
    sample: Callable[[Array, ArrayTree], Array]  # (parameters, noise) -> action
    mode: Callable[[Array], Array]
    log_prob: Callable[[Array, Array], Array]  # (parameters, action) -> [...]
    entropy: Callable[[Array], Array]
    kl: Callable[[Array, Array], Array]  # of the first from the second


def categorical(actions: int, start: int = 0) -> Distribution:
    """A categorical distribution over `start … start + actions − 1`, by its logits.

    Sampled by the Gumbel-max trick: `argmax(logits + g)` (Gumbel, 1954).
    """

    def log_prob(logits: Array, action: Array) -> Array:
        logs = jax.nn.log_softmax(logits)
        index = (action - start)[..., None]
        return jnp.take_along_axis(logs, index, axis=-1)[..., 0]

    def entropy(logits: Array) -> Array:
        logs = jax.nn.log_softmax(logits)
        return -jnp.sum(jnp.exp(logs) * logs, axis=-1)

    def kl(logits: Array, other: Array) -> Array:
        logs = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(logs) * (logs - jax.nn.log_softmax(other)), axis=-1)

    return Distribution(
        name="categorical",
        size=actions,
        draw=lambda key, batch: jax.random.gumbel(key, (batch, actions)),
        sample=lambda logits, noise: start + jnp.argmax(logits + noise, axis=-1),
        mode=lambda logits: start + jnp.argmax(logits, axis=-1),
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
    )


def normal(shape: tuple[int, ...]) -> Distribution:
    """Independent normal distributions; parameters are means, then log-scales.

    log p(a) = Σ −½ ((a − μ)/σ)² − log σ − ½ log 2π
    """
    size = int(np.prod(shape, dtype=int))

    def split(parameters: Array) -> tuple[Array, Array]:
        mean, log_scale = jnp.split(parameters, 2, axis=-1)
        return mean, log_scale

    def shaped(flat: Array) -> Array:
        return flat.reshape(flat.shape[:-1] + shape)

    def sample(parameters: Array, noise: Array) -> Array:
        mean, log_scale = split(parameters)
        return shaped(mean + jnp.exp(log_scale) * noise)

    def log_prob(parameters: Array, action: Array) -> Array:
        mean, log_scale = split(parameters)
        error = (action.reshape(mean.shape) - mean) * jnp.exp(-log_scale)
        constant = 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(-0.5 * error**2 - log_scale - constant, axis=-1)

    def entropy(parameters: Array) -> Array:
        _, log_scale = split(parameters)
        return jnp.sum(log_scale + 0.5 * jnp.log(2 * jnp.pi * jnp.e), axis=-1)

    def kl(parameters: Array, other: Array) -> Array:
        mean, log_scale = split(parameters)
        other_mean, other_log_scale = split(other)
        ratio = jnp.exp(2 * (log_scale - other_log_scale))
        error = ((mean - other_mean) * jnp.exp(-other_log_scale)) ** 2
        log_ratio = other_log_scale - log_scale
        return jnp.sum(0.5 * (ratio + error - 1) + log_ratio, axis=-1)

    return Distribution(
        name="normal",
        size=2 * size,
        draw=lambda key, batch: jax.random.normal(key, (batch, size)),
        sample=sample,
        mode=lambda parameters: shaped(split(parameters)[0]),
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
    )


def over(space: gymnasium.Space) -> Distribution:
    """The default family of distributions over a space of actions."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return categorical(int(space.n), int(space.start))
    if isinstance(space, gymnasium.spaces.Box) and np.issubdtype(
        space.dtype, np.floating
    ):
        return normal(space.shape)
    raise TypeError(f"expected Discrete or a Box of floats, got {space}")
