"""KArmedBandit: the testbed of ten arms by which a textbook begins."""

from __future__ import annotations

import jax

from rlcli.environments.native.bandits.arms import BanditRules, bandit
from rlcli.registry import register
from rlcli.types import Array, Count, Environment, Key, NonNegative


@register("environment", "KArmedBandit-v0")
def k_armed_bandit(
    *,
    arms: Count = 10,
    length: Count = 1000,
    mean: float = 0.0,
    spread: NonNegative = 1.0,
    noise: NonNegative = 1.0,
    drift: NonNegative = 0.0,
) -> Environment:
    """Pulls arms that pay something around a mean of their own, anew each episode.

        q*(a) ~ N(mean, spread²)    reward ~ N(q*(a), noise²)    q*′ ~ N(q*, drift²)

    Observation: float32 `[1]`, the share of the pulls that are done. Actions: the arms.
    An episode terminates after `length` pulls. Logged: `regret`, how much more the best
    arm would have paid on average. From (Sutton & Barto, 2018, section 2.3,
    http://incompleteideas.net/book/the-book-2nd.html), where the best of ten arms pays
    1.54 on average; exercise 2.5 has `spread: 0, drift: 0.01, length: 10_000`.

    Args:
        arms: how many.
        length: how many pulls an episode has.
        mean: of what the arms pay on average.
        spread: the standard deviation of that, …
        noise: … and that of a reward.
        drift: the standard deviation by which each mean moves after each pull.
    """

    def means(key: Key) -> Array:
        return mean + spread * jax.random.normal(key, (arms,))

    # One normal number for the reward, and one for each mean.
    rules = BanditRules(
        means=means,
        pay=lambda mean, arm, normal: mean + noise * normal[0],
        draw=lambda key: jax.random.normal(key, (1 + arms,)),
        scale=(-3.0, 3.0),
        drift=lambda means, normal: means + drift * normal[1:],
    )
    return bandit(rules, arms, length)
