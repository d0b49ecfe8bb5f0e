"""Normal distributions: independent for each entry of an array."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from rlcli.distributions.family import Distribution, Event, Parameters, PerSample, Shape
from rlcli.types import Array

PerEntry: TypeAlias = Float[Array, "*batch entries"]
_HALF_LOG_TAU = 0.5 * float(np.log(2 * np.pi))  # ½ log 2π


def normal(shape: Shape, dtype: Any = np.float32) -> Distribution:
    """Independent normal distributions; parameters are means, then log-scales.

        log p(x) = Σ −½ ((x − μ)/σ)² − log σ − ½ log 2π

    The network determines whether the scales depend on the observation.
    """
    event, size = Event(shape), Event(shape).size

    def sample(parameters: Parameters, noise: Array) -> Array:
        mean, log_scale = split_parameters(parameters)
        return event.unflatten(mean + jnp.exp(log_scale) * noise).astype(dtype)

    def differentiable(parameters: Parameters, noise: Array) -> tuple[Array, PerSample]:
        x = sample(parameters, noise)
        return x, log_prob(parameters, x)

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        return jnp.sum(log_density(parameters, event.flatten(jnp.asarray(x))), -1)

    return Distribution(
        name="normal",
        size=2 * size,
        draw=lambda key, batch: jax.random.normal(key, (batch, size)),
        sample=sample,
        mode=lambda parameters: event.unflatten(split_parameters(parameters)[0]).astype(
            dtype
        ),
        log_prob=log_prob,
        entropy=entropy,
        kl=kl,
        mean=lambda parameters: event.unflatten(split_parameters(parameters)[0]),
        differentiable=differentiable,
        log_scales=tuple(range(size, 2 * size)),
    )


def split_parameters(parameters: Parameters) -> tuple[PerEntry, PerEntry]:
    """Splits parameters into means and log-scales."""
    mean, log_scale = jnp.split(parameters, 2, axis=-1)
    return mean, log_scale


def join_parameters(mean: Array, log_scale: Array) -> Parameters:
    """Joins means and log-scales, which broadcast, into parameters."""
    return jnp.concatenate(jnp.broadcast_arrays(mean, log_scale), axis=-1)


def log_density(
    parameters: Parameters, x: Float[Array, "... entries"]
) -> Float[Array, "... entries"]:
    """The log-density of each entry of x."""
    mean, log_scale = split_parameters(parameters)
    error = (x - mean) * jnp.exp(-log_scale)
    return -0.5 * error**2 - log_scale - _HALF_LOG_TAU


def entropy(parameters: Parameters) -> PerSample:
    """Σ log σ + ½ log 2πe."""
    _, log_scale = split_parameters(parameters)
    return jnp.sum(log_scale + 0.5 + _HALF_LOG_TAU, axis=-1)


def kl(parameters: Parameters, other: Parameters) -> PerSample:
    """Σ ½ ((σ² + (μ − μ′)²) / σ′² − 1) + log σ′/σ."""
    mean, log_scale = split_parameters(parameters)
    other_mean, other_log_scale = split_parameters(other)
    error = (mean - other_mean) * jnp.exp(-other_log_scale)
    squares = jnp.exp(2 * (log_scale - other_log_scale)) + error**2
    return jnp.sum(0.5 * (squares - 1) + (other_log_scale - log_scale), axis=-1)
