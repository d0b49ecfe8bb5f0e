"""BernoulliBandit: arms that pay 1 or nothing, each as often as it does."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge, Le

from rlcli.environments.native.bandits.arms import BanditRules, bandit
from rlcli.registry import register
from rlcli.types import Array, Count, Environment, Key, Probability

Chance = Annotated[float, "structural", Ge(0.0), Le(1.0)]


@register("environment", "BernoulliBandit-v0")
def bernoulli_bandit(
    *,
    arms: Count = 5,
    length: Count = 100,
    low: Probability = 0.0,
    high: Probability = 1.0,
    probabilities: tuple[Chance, ...] | None = None,
) -> Environment:
    """Pulls arms that pay 1 with a probability of their own, else 0: which pays most?

    Every episode has new arms. It is a task for a memory: wrapped in `previous`, one
    sees the last arm and what it paid.
    Observation: float32 `[1]`, the share of the pulls that are done. Actions: the arms.
    An episode terminates after `length` pulls. Logged: `regret`, how much more the best
    arm would have paid on average. From (Duan et al., 2016,
    https://arxiv.org/abs/1611.02779), where Thompson sampling gets 74.7 of 100 pulls of
    5 arms, and chance 49.9.

    Args:
        arms: how many.
        length: how many pulls an episode has.
        low: probabilities are drawn between this …
        high: … and this, all equally likely.
        probabilities: those of all arms, in a new order each episode; then `arms`,
            `low` and `high` are not read. [0.1, 0.9] are the easy arms of (Wang et al.,
            2016, https://arxiv.org/abs/1611.05763).
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
