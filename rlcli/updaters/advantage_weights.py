"""Advantage weights: how much policies imitate actions, by their advantage."""

import jax.numpy as jnp

from rlcli.types import Array, PerRow


def exponential_weight(
    advantage: PerRow, beta: Array | float, limit: Array | float
) -> PerRow:
    """min(exp(β Â), limit), the weight of advantage-weighted regression.

    Of the policies at a given KL divergence from the policy μ that acted, one of the
    form π(a|s) ∝ μ(a|s) exp(β Â) has the highest expected advantage (Peng et al., 2019,
    https://arxiv.org/abs/1910.00177).
    """
    # Limited before the exponential, which could overflow.
    return jnp.exp(jnp.minimum(beta * advantage, jnp.log(limit)))
