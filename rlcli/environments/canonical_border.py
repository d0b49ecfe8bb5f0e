"""The border between an agent and an environment: canonical spaces around a core."""

from collections.abc import Callable
from typing import Literal, TypeVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.spaces.canonical import canonical_observation, canonical_spaces
from rlcli.types import Array, ArrayTree, Core, Environment, External, Key, Step, wrap

_E = TypeVar("_E", Core, Environment)
GoalReward = Callable[..., tuple[Array, Array]]


def canonical_environment(core: _E, owner: str) -> _E:
    """The environment that an agent meets: its spaces are canonical.

    `core` may be a vector, too. Observations and actions are converted at each step;
    actions outside the bounds of a Box are clipped. `external` has the spaces of
    `core`, and the state is that of `core`.
    """
    external = External(core.observation, core.action)
    observation, action = canonical_spaces(external, owner)

    def read(obs: ArrayTree) -> ArrayTree:
        return observation.to_canonical(jax.tree.map(_as_array, obs))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = core.reset(key)
        return state, read(obs)

    def step(state: ArrayTree, choice: ArrayTree, *rest: ArrayTree) -> Step:
        choice = action.to_external(jax.tree.map(_as_array, choice))
        state, timestep = core.step(state, choice, *rest)
        return state, timestep._replace(
            obs=read(timestep.obs), next_obs=read(timestep.next_obs)
        )

    return wrap(
        core,
        keeps=["render", "render_final", "parameters", "frame_stack", "costly_reset"],
        reset=reset,
        step=step,
        observation=observation.space,
        action=action.space,
        external=external,
        goal_reward=convert_goals(core.goal_reward, core.observation, "to_external"),
    )


def _as_array(leaf: ArrayTree) -> Array:
    return leaf if isinstance(leaf, np.ndarray) else jnp.asarray(leaf)


def convert_goals(
    goal_reward: GoalReward | None,
    space: gymnasium.Space,
    conversion: Literal["to_canonical", "to_external"],
) -> GoalReward | None:
    """A `goal_reward` whose goals are converted first; `space` is the external one."""
    if goal_reward is None or not isinstance(space, gymnasium.spaces.Dict):
        return None
    achieved, desired = (
        getattr(canonical_observation(space[name]), conversion)
        for name in ("achieved_goal", "desired_goal")
    )
    return lambda got, wanted: goal_reward(achieved(got), desired(wanted))
