"""Bandits: one state, several arms, and episodes of a fixed number of pulls.

They log the regret, and draw a chart of the arms.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Le

from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Count, Key, NonNegative, Probability


class BanditState(NamedTuple):
    """The arms of the current episode."""

    means: Array  # float32 [arms]: the mean reward of each
    pulled: Array  # int32 [arms]: the number of pulls of each


class BanditRules(NamedTuple):
    """The reward distribution of a bandit with a fixed number of `[arms]` arms."""

    means: Callable[[Key], Array]  # key -> float32 [arms]
    pay: Callable[[Array, Array, ArrayTree], Array]  # (mean, arm, noise) -> reward
    draw: Callable[[Key], ArrayTree]  # key -> noise
    scale: tuple[float, float]  # the range of rewards on the chart
    drift: Callable[[Array, ArrayTree], Array] = lambda means, noise: means


def bandit(rules: BanditRules, arms: int, length: int) -> Core:
    """Builds a bandit that terminates after `length` pulls.

    The observation is the fraction of pulls used, float32 `[1]`. It logs `regret`: the
    mean reward of the best arm minus that of the pulled arm.
    """

    def observe(state: BanditState) -> Array:
        return (jnp.sum(state.pulled, keepdims=True) / length).astype(jnp.float32)

    def begin(key: Key) -> BanditState:
        return BanditState(rules.means(key), jnp.zeros(arms, jnp.int32))

    def step(state: BanditState, action: Array, noise: ArrayTree) -> tuple:
        mean = state.means[action]
        pulls = state.pulled + (np.arange(arms) == action)
        reward = rules.pay(mean, action, noise)
        info = {"regret": jnp.max(state.means) - mean}
        state = BanditState(rules.drift(state.means, noise), pulls)
        return state, reward, jnp.sum(pulls) >= length, info

    def render(state: BanditState) -> np.ndarray:
        means, pulls = map(np.asarray, state)
        return _draw_arms(means, pulls, length, rules.scale)

    observation = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    return native_core(
        begin, step, observe, observation, arms, render=render, draw=rules.draw
    )


def _draw_arms(
    means: np.ndarray, pulls: np.ndarray, length: int, scale: tuple[float, float]
) -> np.ndarray:
    """Draws the mean reward and the pull count of each arm, `[420, 640, 3]` uint8."""
    canvas = drawing.Canvas(640, 420)
    canvas.text((20, 22), "mean reward", 15, anchor="lm")
    canvas.text((20, 282), f"pulls, of {length}", 15, anchor="lm")
    canvas.legend((470, 15), {"best": drawing.GREEN, "others": drawing.BLUE})
    low, high = scale
    width = 600 / len(means)

    def level(value: float) -> float:
        return 40 + 215 * (high - float(np.clip(value, low, high))) / (high - low)

    for number, (mean, count) in enumerate(zip(means, pulls, strict=True)):
        left, middle = 20 + (number + 0.12) * width, 20 + (number + 0.5) * width
        bar_width, radius = 0.76 * width, min(4, width / 8)
        fill = drawing.GREEN if mean == means.max() else drawing.BLUE
        top, foot = sorted((level(mean), level(0.0)))
        canvas.box((left, top - 1), bar_width, foot - top + 2, fill, radius=radius)
        height = 2 + 88 * float(count) / length
        corner = (left, 394 - height)
        canvas.box(corner, bar_width, height, "#b9a06a", radius=min(1, radius))
        if width >= 30:
            label_y = level(max(float(mean), 0.0)) - 9
            canvas.text((middle, max(label_y, 36)), f"{mean:.2f}", 12)
            canvas.text((middle, 406), str(count), 12)
    for y in (level(0.0), 394):
        canvas.line((20, y), (620, y), 2, drawing.INK)
    return canvas.pixels()


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
