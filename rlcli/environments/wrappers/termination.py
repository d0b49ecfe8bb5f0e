"""Wrappers of endings: when an episode is over."""

from __future__ import annotations

import jax.numpy as jnp

from rlcli.environments.wrappers import WrapperState
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Environment, Key, TimeStep


@register("wrapper")
def terminal_on_life_loss(core: Environment, *, lives: str = "lives") -> Environment:
    """Ends the episode, as a termination, where a life is lost (Mnih et al., 2015).

    For a core that logs how many there are left; before `action_repeat` in the list,
    which adds up what is logged.

    Args:
        lives: under which name it logs them.
    """

    def reset(key: Key) -> tuple[WrapperState, ArrayTree]:
        state, obs = core.reset(key)
        # Nobody knows before the first step how many there are.
        return WrapperState(state, jnp.float32(-1)), obs

    def step(
        state: WrapperState, action: ArrayTree, noise: ArrayTree
    ) -> tuple[WrapperState, TimeStep]:
        inner, timestep = core.step(state.core, action, noise)
        left = _lives_left(timestep, lives)
        last = timestep.last | (left < state.memory)
        discount = jnp.where(left < state.memory, 0.0, timestep.discount)
        return WrapperState(inner, left), timestep._replace(
            discount=discount, last=last
        )

    return core._replace(
        reset=reset, step=step, render=lambda state: core.render(state.core)
    )


def _lives_left(timestep: TimeStep, name: str) -> Array:
    if name not in timestep.info:
        known_names = (
            ", ".join(f"`{info_name}`" for info_name in timestep.info) or "nothing"
        )
        raise RlcliError(
            f"wrapper `terminal_on_life_loss` needs an environment that logs `{name}`",
            f"this one logs {known_names}; `lives` of the wrapper names what counts "
            f"them",
        )
    return jnp.asarray(timestep.info[name], jnp.float32)
