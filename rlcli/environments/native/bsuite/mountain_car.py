"""MountainCar of bsuite: the time is observed, and the time limit terminates."""

import math
from typing import NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.classic_control import mountain_car as classic
from rlcli.environments.native.core import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, NonNegative, Step, wrap


class TimedMountainCarState(NamedTuple):
    """The position and velocity of the car, and the time."""

    car: classic.MountainCarState
    time: Array  # int32: steps of the episode so far


@register("environment", "bsuite/MountainCar")
def mountain_car(
    *,
    max_steps: Count = 1000,
    force: NonNegative = 0.001,
    gravity: float = 0.0025,
    goal_position: float = 0.5,
) -> Core:
    """Drives an underpowered car out of a valley: reward −1 per step until the goal.

    The car moves as in MountainCar-v0. The episode terminates when x ≥ goal_position,
    at any speed, and after `max_steps` steps.
    Observation: float32 `[1, 3]`: x, v, and the time as a fraction of max_steps.
    Actions: 0 pushes left, 1 does not push, 2 pushes right. Logged: `raw_return`, the
    reward before wrappers change it. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568).
    """
    core = classic.mountain_car(
        force=force,
        gravity=gravity,
        goal_position=goal_position,
        goal_velocity=-math.inf,
    )

    def observe(physics: Array, time: Array) -> Array:
        return jnp.append(physics, time / max_steps)[None]

    def reset(key: Key) -> tuple[TimedMountainCarState, Array]:
        car, physics = core.reset(key)
        time = jnp.int32(0)
        return TimedMountainCarState(car, time), observe(physics, time)

    def step(state: TimedMountainCarState, action: Array, noise: tuple[()]) -> Step:
        car, timestep = core.step(state.car, action, noise)
        state = TimedMountainCarState(car, state.time + 1)
        terminated = timestep.last | (state.time >= max_steps)
        reward = timestep.reward
        obs = observe(timestep.obs, state.time)
        return state, make_timestep(obs, reward, terminated, {"raw_return": reward})

    low = np.array([[-1.2, -0.07, 0.0]], np.float32)
    high = np.array([[0.6, 0.07, 1.0]], np.float32)
    return wrap(
        core,
        keeps=["render"],
        inner_state=lambda state: state.car,
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(low, high, dtype=np.float32),
    )
