"""GaussianBandit: one arm that pays nothing, and one that may pay more or less."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlcli.environments.native.bandits.arms import BanditRules, bandit
from rlcli.registry import register
from rlcli.types import Array, Count, Environment, Key, NonNegative


@register("environment", "GaussianBandit-v0")
def gaussian_bandit(
    *,
    mean: float = -1.0,
    spread: NonNegative = 1.0,
    noise: NonNegative = 0.1,
    length: Count = 100,
) -> Environment:
    """Pulls one of two arms: 0 pays nothing, 1 what has to be found out.

        μ ~ N(mean, spread²), anew each episode     reward of arm 1 ~ N(μ, noise²)

    Whether it is worth while to find out depends on `mean`, `spread` and `length`.
    Observation: float32 `[1]`, the share of the pulls that are done. An episode
    terminates after `length` pulls. Logged: `regret`, how much more the better arm
    would have paid on average. From (Lange & Sprekeler, 2020,
    https://arxiv.org/abs/2010.04466).

    Args:
        mean: what arm 1 pays on average over episodes.
        spread: the standard deviation of that between episodes, …
        noise: … and that of a reward within one.
        length: how many pulls an episode has.
    """

    def means(key: Key) -> Array:
        uncertain = mean + spread * jax.random.normal(key)
        return jnp.stack([jnp.zeros_like(uncertain), uncertain])

    rules = BanditRules(
        means=means,
        pay=lambda mean, arm, normal: mean + noise * normal * (arm == 1),
        draw=jax.random.normal,
        scale=(-4.0, 4.0),
    )
    return bandit(rules, 2, length)
