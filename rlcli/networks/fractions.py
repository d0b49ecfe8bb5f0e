"""Fractions: the quantile fractions τ of quantile networks."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32

from rlcli.types import Array, Key


def quantiles(
    batch_size: int, num_quantiles: int = 200
) -> Float32[Array, "{batch_size} {num_quantiles}"]:
    """The midpoints of N equal parts of [0, 1].

        τᵢ = (i + ½) / N        i = 0 … N − 1

    For quantile regression (Dabney et al., 2018a, https://arxiv.org/abs/1710.10044).
    """
    midpoints = (jnp.arange(num_quantiles, dtype=jnp.float32) + 0.5) / num_quantiles
    return jnp.broadcast_to(midpoints, (batch_size, num_quantiles))


def quantiles_uniform(
    rng: Key, batch_size: int, num_quantiles: int = 32
) -> Float32[Array, "{batch_size} {num_quantiles}"]:
    """N fractions from U(0, 1), sorted in each row.

    For implicit quantile networks (Dabney et al., 2018b,
    https://arxiv.org/abs/1806.06923).
    """
    fractions = jax.random.uniform(rng, (batch_size, num_quantiles))
    return jnp.sort(fractions, axis=-1)


def quantile_cos_embedding(
    quantile_fractions: Any, n: int = 64
) -> Float[Array, "*batch {n}"]:
    """Cosine embedding of fractions `[*batch]` (Dabney et al., 2018b).

    φᵢ(τ) = cos(π i τ)        0 ≤ i < n
    """
    fractions = jnp.asarray(quantile_fractions)[..., None]
    return _cos_pi(jnp.arange(n) * fractions)


def _cos_pi(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """cos(π x), as accurate as `jnp.cos(π x)`, in half the time on a CPU.

    The argument is in half turns, so whole turns are subtracted exactly. The rest is a
    Taylor series of the sine over a quarter turn, with an error below 6e-8.
    """
    turns = x / 2
    quarter = 0.25 - jnp.abs(turns - jnp.round(turns))  # cos(2π t) = sin(2π (¼ − |t|))
    angle = 2 * jnp.pi * quarter
    series = jnp.zeros_like(x)
    for order in (11, 9, 7, 5, 3, 1):
        sign = 1 - (order - 1) % 4
        series = series * angle**2 + sign / math.factorial(order)
    return angle * series
