"""Advantage weights: how much policies imitate actions, by their advantage."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float

from rlcli.types import Array


def exponential_weight(
    advantage: Float[Array, "T B"], beta: Array | float, limit: Array | float
) -> Float[Array, "T B"]:
    """min(exp(β Â), limit), the weight of advantage-weighted regression.

    The policy π(a|s) ∝ μ(a|s) exp(β Â) maximizes the expected advantage at a given
    divergence from the policy μ that acted (Peters & Schaal, 2007,
    https://doi.org/10.1145/1273496.1273590).
    """
    # Limited before the exponential, which could overflow.
    return jnp.exp(jnp.minimum(beta * advantage, jnp.log(limit)))
