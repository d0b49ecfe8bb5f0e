"""Squashed normal distribution: a normal, transformed into the bounds of a Box."""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from rlcli import spaces
from rlcli.distributions import normals
from rlcli.distributions.family import Distribution, Event, Parameters, PerSample
from rlcli.types import Array

LOG_SCALE_BOUNDS = (-5.0, 2.0)  # float32 cannot resolve narrower distributions
_MARGIN = 1e-6  # minimum distance of samples from a bound, relative to the width
# Quadrature points of a standard normal variable, `[points, 1]`, and their weights.
_NODES = np.linspace(-5.5, 5.5, 32, dtype=np.float32)[:, None]
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.sum(np.exp(-0.5 * _NODES**2))


def squashed_normal(space: gymnasium.spaces.Box) -> Distribution:
    """Squashed normal distribution over a Box; the parameters are μ, then log σ.

        x = g(u),  u ~ N(μ, σ²),  log p(x) = Σ log N(u; μ, σ²) − log g′(u)

        [a, b]    g(u) = (a + b)/2 + (b − a)/2 · tanh u
        [a, ∞)    g(u) = a + log(1 + eᵘ)
        (−∞, b]   g(u) = b − log(1 + e⁻ᵘ)
        (−∞, ∞)   g(u) = u: not squashed, a normal distribution

    (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905). Entries are independent.
    Log-scales are clipped to `LOG_SCALE_BOUNDS`. Samples keep a minimum distance from
    the bounds: 10⁻⁶ of the width (10⁻⁶ for a single bound), or the resolution of
    float32 if that is larger. The density of an x nearer to a bound is the density at
    that distance, so it is finite.

    `mode` is g(μ), the mode of u mapped to x. It is the median of x, whose density may
    be bimodal. `kl` is exact: that of the normal distributions. `mean`, and
    E[log g′(u)] in `entropy`, use quadrature with 32 points of u within 5.5 σ and no
    random numbers; the error is 1e-5 for σ ≤ 2 and 0.02 for the largest σ.
    """
    if not np.issubdtype(space.dtype, np.floating):
        raise TypeError(f"expected a Box of floats, got {space}")
    event, dtype = Event(space.shape), spaces.dtype(space)
    size = event.size
    squash = box_bijector(*(bound.ravel() for bound in spaces.bounds(space)))

    def sample(parameters: Parameters, noise: Array | float) -> Array:
        mean, log_scale = normals.split_parameters(_clip_log_scale(parameters))
        u = mean + jnp.exp(log_scale) * noise
        return event.unflatten(squash.forward(u)).astype(dtype)

    def differentiable(parameters: Parameters, noise: Array) -> tuple[Array, PerSample]:
        clipped = _clip_log_scale(parameters)
        mean, log_scale = normals.split_parameters(clipped)
        u = mean + jnp.exp(log_scale) * noise
        # Computed from u, not from the inverse of x, so that the gradient is correct
        # even if x is clipped at a bound.
        density = normals.log_density(clipped, u) - squash.log_slope(u)
        x = event.unflatten(squash.forward(u)).astype(dtype)
        return x, jnp.sum(density, axis=-1)

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        x = event.flatten(jnp.asarray(x).astype(jnp.float32))
        u, log_slope = squash.inverse(x)
        return jnp.sum(
            normals.log_density(_clip_log_scale(parameters), u) - log_slope, axis=-1
        )

    def entropy(parameters: Parameters) -> PerSample:
        log_slope = _quadrature_mean(squash.log_slope(_quadrature_points(parameters)))
        normal_entropy = normals.entropy(_clip_log_scale(parameters))
        return normal_entropy + jnp.sum(log_slope, axis=-1)

    return Distribution(
        name="squashed_normal",
        size=2 * size,
        draw=lambda key, batch: jax.random.normal(key, (batch, size)),
        sample=sample,
        mode=lambda parameters: sample(parameters, 0.0),
        log_prob=log_prob,
        entropy=entropy,
        kl=lambda parameters, other: normals.kl(
            _clip_log_scale(parameters), _clip_log_scale(other)
        ),
        mean=lambda parameters: event.unflatten(
            _quadrature_mean(squash.forward(_quadrature_points(parameters)))
        ),
        differentiable=differentiable,
    )


def _clip_log_scale(parameters: Parameters) -> Parameters:
    """Clips the log-scales to `LOG_SCALE_BOUNDS`."""
    mean, log_scale = normals.split_parameters(parameters)
    return normals.join_parameters(mean, jnp.clip(log_scale, *LOG_SCALE_BOUNDS))


def _quadrature_points(parameters: Parameters) -> Float[Array, "*batch points entries"]:
    """Returns the quadrature points of u."""
    mean, log_scale = (
        parameter[..., None, :]
        for parameter in normals.split_parameters(_clip_log_scale(parameters))
    )
    return mean + jnp.exp(log_scale) * _NODES


def _quadrature_mean(
    values: Float[Array, "*batch points entries"],
) -> Float[Array, "*batch entries"]:
    """Averages over quadrature points by the trapezoidal rule.

    For smooth functions that vanish at both ends it is more accurate than Gaussian
    quadrature with as many points.
    """
    return jnp.sum(values * _WEIGHTS, axis=-2)


class Bijector(NamedTuple):
    """An increasing function from the real numbers to an interval, per entry."""

    forward: Callable[[Array], Array]  # u -> x
    log_slope: Callable[[Array], Array]  # u -> log g′(u)
    inverse: Callable[[Array], tuple[Array, Array]]  # x -> u, log g′(u)


def box_bijector(
    low: Float[np.ndarray, "entries"], high: Float[np.ndarray, "entries"]
) -> Bijector:
    """Builds the bijector for the bounds, which may be infinite."""
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    has_both, has_none = has_low & has_high, ~has_low & ~has_high
    # Finite placeholders, so that branches that are not selected produce no NaN.
    low, high = np.where(has_low, low, 0), np.where(has_high, high, 0)
    middle, half = low / 2 + high / 2, np.where(has_both, high / 2 - low / 2, 1)
    resolution = 4 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
    margin = np.maximum(_MARGIN * np.where(has_both, 2 * half, 1), resolution)
    margin = np.where(has_both & (low == high), 0, margin)  # a constant entry
    x_min, x_max = (
        np.where(has_low, low + margin, -np.inf).astype(np.float32),
        np.where(has_high, high - margin, np.inf).astype(np.float32),
    )

    def choose(tanh: Array, lower: Array, upper: Array, free: Array) -> Array:
        one_sided = jnp.where(has_low, lower, upper)
        return jnp.where(has_both, tanh, jnp.where(has_none, free, one_sided))

    def forward(u: Array) -> Array:
        lower, upper = low + jax.nn.softplus(u), high - jax.nn.softplus(-u)
        return jnp.clip(
            choose(middle + half * jnp.tanh(u), lower, upper, u), x_min, x_max
        )

    def log_slope(u: Array) -> Array:
        tanh = np.log(4 * half) - 2 * (u + jax.nn.softplus(-2 * u))
        free = jnp.zeros_like(u)
        return choose(tanh, jax.nn.log_sigmoid(u), jax.nn.log_sigmoid(-u), free)

    def inverse(x: Array) -> tuple[Array, Array]:
        # Uses the distances to the bounds, because they are exact near the bounds.
        from_low, from_high = (
            jnp.maximum(x - low, margin),
            jnp.maximum(high - x, margin),
        )
        log_over, log_under = jnp.log(from_low), jnp.log(from_high)
        rise, fall = _softplus_log_slope(from_low), _softplus_log_slope(from_high)
        u = choose((log_over - log_under) / 2, from_low + rise, -from_high - fall, x)
        slope = log_over + log_under - np.log(half)
        return u, choose(slope, rise, fall, jnp.zeros_like(x))

    return Bijector(forward, log_slope, inverse)


def _softplus_log_slope(distance: Array) -> Array:
    """log(1 − e⁻ᵈ): the log-slope of log(1 + eᵘ) where it has the value d."""
    return jnp.log(-jnp.expm1(-distance))
