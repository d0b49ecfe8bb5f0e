"""SimpleBandit: eleven arms with fixed rewards."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.bsuite import Seed
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Count, Environment, Key, TimeStep


class SimpleBanditState(NamedTuple):
    """The last action."""

    arm: Array  # int32: the pulled arm; −1 before the first step


@register("environment", "bsuite/SimpleBandit")
def simple_bandit(*, num_actions: Count = 11, mapping_seed: Seed = 0) -> Environment:
    """Bandit with fixed rewards: each arm always pays the same amount, from 0 to 1.

    The rewards are evenly spaced, in an order that is fixed by `mapping_seed`. The
    episode terminates after one step.
    Observation: float32 `[1, 1]`, always 1. Actions: the arms. Logged: `regret`, 1
    minus the reward. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568).

    Args:
        num_actions: the number of arms.
        mapping_seed: the seed of the order of the rewards, drawn as in bsuite.
    """
    worth = _rewards(num_actions, mapping_seed)
    rewards = jnp.asarray(worth, jnp.float32)
    obs = np.ones((1, 1), np.float32)

    def reset(key: Key) -> tuple[SimpleBanditState, Array]:
        del key  # the initial state is fixed
        return SimpleBanditState(jnp.int32(-1)), jnp.asarray(obs)

    def step(
        state: SimpleBanditState, action: Array, noise: tuple[()]
    ) -> tuple[SimpleBanditState, TimeStep]:
        del state, noise
        reward = jnp.take(rewards, action, mode="clip")
        arm = jnp.asarray(action, jnp.int32)
        info = {"regret": 1.0 - reward}
        return SimpleBanditState(arm), make_timestep(
            jnp.asarray(obs), reward, jnp.bool_(True), info
        )

    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(1.0, 1.0, (1, 1), np.float32),
        action=gymnasium.spaces.Discrete(num_actions),
        render=lambda state: _draw(worth, int(state.arm)),
        draw=lambda key: (),
    )


def _rewards(number: int, seed: int) -> np.ndarray:
    order = np.random.RandomState(seed).choice(number, size=number, replace=False)
    return np.linspace(0, 1, number)[order]


def _draw(rewards: np.ndarray, arm: int) -> np.ndarray:
    """Draws the reward of each arm as a bar, `[320, 640, 3]` uint8."""
    canvas = drawing.Canvas(640, 320)
    width = 600 / len(rewards)
    for number, reward in enumerate(rewards):
        height = 4 + 230 * float(reward)
        left = 20 + number * width
        is_pulled = number == arm
        fill = drawing.BLUE if is_pulled else "#b9c7dc"
        corner = (left + 0.1 * width, 274 - height)
        canvas.box(corner, 0.8 * width, height, fill, radius=min(4, width / 8))
        if width >= 24:
            ink = drawing.INK if is_pulled else drawing.GREY
            canvas.text((left + width / 2, 290), str(number), 13, ink)
            canvas.text((left + width / 2, 262 - height), f"{reward:.1f}", 12, ink)
    canvas.line((20, 275), (620, 275), 2, drawing.INK)
    return canvas.pixels()
