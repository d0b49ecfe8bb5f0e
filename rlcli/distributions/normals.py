"""Normal distributions: independent in every entry of an array of numbers."""

from __future__ import annotations

from typing import Any

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

_HALF_LOG_TAU = 0.5 * float(np.log(2 * np.pi))
_TINY = float(np.finfo(np.float32).tiny)


def normal(shape: Shape, dtype: Any = np.float32) -> Distribution:
    """Independent normal distributions; parameters are means, then log-scales.

        log p(x) = Σ −½ ((x − μ)/σ)² − log σ − ½ log 2π

    Whether the scales depend on the observation is the network's affair.
    """
    size = size_of(shape)

    def sample(parameters: Array, noise: Array) -> Array:
        mean, log_scale = split(parameters)
        return shaped(mean + jnp.exp(log_scale) * noise, shape).astype(dtype)

    def differentiable(parameters: Array, noise: Array) -> tuple[Array, Array]:
        x = sample(parameters, noise)
        return x, log_prob(parameters, x)

    def log_prob(parameters: Array, x: Array) -> Array:
        return jnp.sum(log_density(parameters, flattened(jnp.asarray(x), shape)), -1)

    def affine(parameters: Array, scale: Array, shift: Array) -> Array:
        mean, log_scale = split(parameters)
        scale, shift = (entries(each, shape) for each in (scale, shift))
        # A scale of 0 (a value that is not bootstrapped) leaves the least of widths.
        widened = log_scale + jnp.log(jnp.maximum(jnp.abs(scale), _TINY))
        return joined(shift + scale * mean, widened)

    return Distribution(
        name="normal",
        size=2 * size,
        draw=lambda key, batch: jax.random.normal(key, (batch, size)),
        sample=sample,
        mode=lambda parameters: shaped(split(parameters)[0], shape).astype(dtype),
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
        mean=lambda parameters: shaped(split(parameters)[0], shape),
        cross_entropy=cross_entropy,
        affine=affine,
        differentiable=differentiable,
    )


def split(parameters: Array) -> tuple[Array, Array]:
    """Means and log-scales."""
    mean, log_scale = jnp.split(parameters, 2, axis=-1)
    return mean, log_scale


def joined(mean: Array, log_scale: Array) -> Array:
    """Parameters, of what broadcasts against each other."""
    return jnp.concatenate(jnp.broadcast_arrays(mean, log_scale), axis=-1)


def log_density(parameters: Array, x: Array) -> Array:
    """The log-density of each entry of x, `[..., entries]`."""
    mean, log_scale = split(parameters)
    error = (x - mean) * jnp.exp(-log_scale)
    return -0.5 * error**2 - log_scale - _HALF_LOG_TAU


def entropy(parameters: Array) -> Array:
    """Σ log σ + ½ log 2πe, `[...]`."""
    _, log_scale = split(parameters)
    return jnp.sum(log_scale + 0.5 + _HALF_LOG_TAU, axis=-1)


def cross_entropy(parameters: Array, other: Array) -> Array:
    """Σ ½ (σ² + (μ − μ′)²) / σ′² + log σ′ + ½ log 2π, `[...]`."""
    squares = _squares(parameters, other)
    return jnp.sum(0.5 * squares + split(other)[1] + _HALF_LOG_TAU, axis=-1)


def kl(parameters: Array, other: Array) -> Array:
    """Σ ½ ((σ² + (μ − μ′)²) / σ′² − 1) + log σ′/σ, `[...]`."""
    log_ratio = split(other)[1] - split(parameters)[1]
    return jnp.sum(0.5 * (_squares(parameters, other) - 1) + log_ratio, axis=-1)


def _squares(parameters: Array, other: Array) -> Array:
    """E_p[((x − μ′)/σ′)²] of each entry."""
    mean, log_scale = split(parameters)
    other_mean, other_log_scale = split(other)
    error = (mean - other_mean) * jnp.exp(-other_log_scale)
    return jnp.exp(2 * (log_scale - other_log_scale)) + error**2
