"""GaussianBandit: one arm with reward 0, and one with an uncertain mean."""

import jax
import jax.numpy as jnp

from rlcli.environments.native.bandits.arms import BanditRules, bandit
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, NonNegative


@register("environment", "GaussianBandit-v0")
def gaussian_bandit(
    *,
    mean: float = -1.0,
    spread: NonNegative = 1.0,
    noise: NonNegative = 0.1,
    length: Count = 100,
) -> Core:
    """Two-armed Gaussian bandit: arm 0 pays 0, arm 1 an unknown mean plus noise.

        μ ~ N(mean, spread²), drawn per episode     reward of arm 1 ~ N(μ, noise²)

    `mean`, `spread` and `length` determine whether exploring arm 1 pays off.
    Observation: float32 `[1]`, the fraction of pulls used. Actions: the arms. An
    episode terminates after `length` pulls. Logged: `regret`, the mean reward of the
    better arm minus that of the pulled arm. From (Lange & Sprekeler, 2020,
    https://arxiv.org/abs/2010.04466).

    Args:
        mean: the average of μ over episodes.
        spread: the standard deviation of μ between episodes.
        noise: the standard deviation of a reward within an episode.
        length: the number of pulls per episode.
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
