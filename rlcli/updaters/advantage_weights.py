"""Advantage weights: how much policies imitate actions, by their advantage."""

import jax.numpy as jnp
from jaxtyping import Float

from rlcli.types import Array


def exponential_weight(
    advantage: Float[Array, "T B"], beta: Array | float, limit: Array | float
) -> Float[Array, "T B"]:
    """min(exp(β Â), limit), the weight of advantage-weighted regression.

    Of the policies at a given KL divergence from the policy μ that acted, one of the
    form π(a|s) ∝ μ(a|s) exp(β Â) has the highest expected advantage (Peng et al., 2019,
    https://arxiv.org/abs/1910.00177).
    """
    # Limited before the exponential, which could overflow.
    return jnp.exp(jnp.minimum(beta * advantage, jnp.log(limit)))
