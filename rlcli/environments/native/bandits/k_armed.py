"""KArmedBandit: the 10-armed testbed of Sutton and Barto."""

import jax

from rlcli.environments.native.bandits.arms import BanditRules, bandit
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, NonNegative


@register("environment", "KArmedBandit-v0")
def k_armed_bandit(
    *,
    arms: Count = 10,
    length: Count = 1000,
    mean: float = 0.0,
    spread: NonNegative = 1.0,
    noise: NonNegative = 1.0,
    drift: NonNegative = 0.0,
) -> Core:
    """k-armed bandit: each arm pays its own mean plus noise; new means per episode.

        q*(a) ~ N(mean, spread²)    reward ~ N(q*(a), noise²)    q*′ ~ N(q*, drift²)

    Observation: float32 `[1]`, the fraction of pulls used. Actions: the arms. An
    episode terminates after `length` pulls. Logged: `regret`, the mean reward of the
    best arm minus that of the pulled arm. From (Sutton & Barto, 2018, section 2.3,
    http://incompleteideas.net/book/the-book-2nd.html), where the best of ten arms pays
    1.54 on average; exercise 2.5 has `spread: 0, drift: 0.01, length: 10_000`.

    Args:
        arms: the number of arms.
        length: the number of pulls per episode.
        mean: the average of q* over arms.
        spread: the standard deviation of q* over arms.
        noise: the standard deviation of a reward.
        drift: the standard deviation of the change of each q* after each pull.
    """

    def means(key: Key) -> Array:
        return mean + spread * jax.random.normal(key, (arms,))

    # One normal sample for the reward, and one for each mean.
    rules = BanditRules(
        means=means,
        pay=lambda mean, arm, normal: mean + noise * normal[0],
        draw=lambda key: jax.random.normal(key, (1 + arms,)),
        scale=(-3.0, 3.0),
        drift=lambda means, normal: means + drift * normal[1:],
    )
    return bandit(rules, arms, length)
