"""The core of a native environment, from the functions of its task."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax.numpy as jnp

from rlcli.types import Array, ArrayTree, Core, Key, Step, TimeStep

NO_INFO: Mapping[str, Array] = {}


def native_core(
    begin: Callable[[Key], Any],
    step: Callable[..., tuple],
    observe: Callable[[Any], ArrayTree] | None,
    observation: gymnasium.Space,
    action: gymnasium.Space | int,
    *,
    draw: Callable[[Key], ArrayTree] | None = None,
    **fields: Any,
) -> Core:
    """Builds the core of a task.

        begin(key) -> state
        step(state, action[, noise]) -> state, reward, terminated[, info]
        observe(state) -> obs

    Args:
        action: its space, or the number of actions of a Discrete one.
        observe: None if `begin` and `step` return the observation after the state.
        draw: the noise of a step; None: `step` takes none.
        fields: others of `Core`, such as `render`.
    """

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        if observe is None:
            return begin(key)
        state = begin(key)
        return state, observe(state)

    def step_core(state: ArrayTree, action: ArrayTree, noise: ArrayTree) -> Step:
        random = () if draw is None else (noise,)
        state, *result = step(state, action, *random)
        seen = () if observe is None else (observe(state),)
        return state, make_timestep(*seen, *result)

    is_space = isinstance(action, gymnasium.Space)
    actions = action if is_space else gymnasium.spaces.Discrete(action)
    draw_noise = draw or (lambda key: ())
    return Core(reset, step_core, observation, actions, draw=draw_noise, **fields)


def make_timestep(
    obs: ArrayTree,
    reward: Array | float,
    terminated: Array,
    info: Mapping[str, Array] = NO_INFO,
) -> TimeStep:
    """Builds a `TimeStep`: `last` is `terminated`, and `discount` is 0 there.

    A native environment has no time limit and does not reset itself, so `obs` equals
    `next_obs`.
    """
    return TimeStep(
        obs=obs,
        next_obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        discount=1.0 - terminated.astype(jnp.float32),
        last=terminated,
        info=dict(info),
    )
