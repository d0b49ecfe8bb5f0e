"""BernoulliBandit: arms with rewards 0 and 1."""

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge, Le

from rlcli.environments.native.bandits.arms import BanditRules, bandit
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, Probability

Chance = Annotated[float, "structural", Ge(0.0), Le(1.0)]


@register("environment", "BernoulliBandit-v0")
def bernoulli_bandit(
    *,
    arms: Count = 5,
    length: Count = 100,
    low: Probability = 0.0,
    high: Probability = 1.0,
    probabilities: tuple[Chance, ...] | None = None,
) -> Core:
    """Bernoulli bandit: each arm pays 1 with its own probability, else 0.

    Every episode draws new arms. The task needs memory: use the wrapper `previous` to
    observe the last action and its reward.
    Observation: float32 `[1]`, the fraction of pulls used. Actions: the arms. An
    episode terminates after `length` pulls. Logged: `regret`, the mean reward of the
    best arm minus that of the pulled arm. From (Duan et al., 2016,
    https://arxiv.org/abs/1611.02779), where Thompson sampling earns 74.7 in 100 pulls
    of 5 arms, and random play 49.9.

    Args:
        arms: the number of arms.
        length: the number of pulls per episode.
        low: the lower bound of the probabilities, which are drawn uniformly.
        high: the upper bound of the probabilities.
        probabilities: fixed probabilities of the arms, shuffled in each episode;
            `arms`, `low` and `high` are then ignored. [0.1, 0.9] are the easy arms of
            (Wang et al., 2016, https://arxiv.org/abs/1611.05763).
    """

    def means(key: Key) -> Array:
        if probabilities is not None:
            return jax.random.permutation(key, jnp.array(probabilities, jnp.float32))
        return low + (high - low) * jax.random.uniform(key, (arms,))

    rules = BanditRules(
        means=means,
        pay=lambda mean, arm, uniform: uniform < mean,
        draw=jax.random.uniform,
        scale=(0.0, 1.0),
    )
    number = arms if probabilities is None else len(probabilities)
    return bandit(rules, number, length)
