"""Bandit core: episodes of a fixed number of pulls, regret, and a chart of the arms."""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.timesteps import make_timestep
from rlcli.types import Array, ArrayTree, Core, Key, TimeStep


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

    def observe(pulls: Array) -> Array:
        return (jnp.sum(pulls, keepdims=True) / length).astype(jnp.float32)

    def reset(key: Key) -> tuple[BanditState, Array]:
        pulls = jnp.zeros(arms, jnp.int32)
        return BanditState(rules.means(key), pulls), observe(pulls)

    def step(
        state: BanditState, action: Array, noise: ArrayTree
    ) -> tuple[BanditState, TimeStep]:
        mean = state.means[action]
        pulls = state.pulled + (np.arange(arms) == action)
        timestep = make_timestep(
            observe(pulls),
            rules.pay(mean, action, noise),
            jnp.sum(pulls) >= length,
            {"regret": jnp.max(state.means) - mean},
        )
        return BanditState(rules.drift(state.means, noise), pulls), timestep

    return Core(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
        action=gymnasium.spaces.Discrete(arms),
        render=lambda state: _draw(
            np.asarray(state.means), np.asarray(state.pulled), length, rules.scale
        ),
        draw=rules.draw,
    )


def _draw(
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
