"""Arms: what all bandits share: episodes of so many pulls, regret, and a chart."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.timesteps import make_timestep
from rlcli.types import Array, ArrayTree, Environment, Key, TimeStep


class BanditState(NamedTuple):
    """The arms of this episode."""

    means: Array  # float32 [arms]: what each pays on average
    pulled: Array  # int32 [arms]: how often each was pulled


class BanditRules(NamedTuple):
    """What makes a bandit; `[arms]` arms, fixed in number."""

    means: Callable[[Key], Array]  # key -> float32 [arms]
    pay: Callable[[Array, Array, ArrayTree], Array]  # (mean, arm, noise) -> reward
    draw: Callable[[Key], ArrayTree]  # key -> noise
    scale: tuple[float, float]  # the rewards between which the chart is drawn
    drift: Callable[[Array, ArrayTree], Array] = lambda means, noise: means


def bandit(rules: BanditRules, arms: int, length: int) -> Environment:
    """A core whose episodes are `length` pulls, after which it terminates.

    It shows the share of them that are done, float32 `[1]`, and logs `regret`: what the
    best arm would have paid more on average.
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

    return Environment(
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
    """What each arm pays, and below how often it was pulled, `[420, 640, 3]` uint8."""
    canvas = drawing.Canvas(640, 420)
    canvas.text((20, 22), "pays on average", 15, anchor="lm")
    canvas.text((20, 282), f"pulled, of {length}", 15, anchor="lm")
    canvas.legend((470, 15), {"best": drawing.GREEN, "others": drawing.BLUE})
    low, high = scale
    width = 600 / len(means)

    def level(value: float) -> float:
        return 40 + 215 * (high - float(np.clip(value, low, high))) / (high - low)

    for number, (mean, times) in enumerate(zip(means, pulls, strict=True)):
        left, middle = 20 + (number + 0.12) * width, 20 + (number + 0.5) * width
        wide, round_ = 0.76 * width, min(4, width / 8)
        fill = drawing.GREEN if mean == means.max() else drawing.BLUE
        top, foot = sorted((level(mean), level(0.0)))
        canvas.box((left, top - 1), wide, foot - top + 2, fill, radius=round_)
        high_ = 2 + 88 * float(times) / length
        canvas.box((left, 394 - high_), wide, high_, "#b9a06a", radius=min(1, round_))
        if width >= 30:
            label_y = level(max(float(mean), 0.0)) - 9
            canvas.text((middle, max(label_y, 36)), f"{mean:.2f}", 12)
            canvas.text((middle, 406), str(times), 12)
    for y in (level(0.0), 394):
        canvas.line((20, y), (620, y), 2, drawing.INK)
    return canvas.pixels()
