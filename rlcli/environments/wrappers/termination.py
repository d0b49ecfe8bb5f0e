"""Termination wrappers: change when an episode ends."""

import jax.numpy as jnp

from rlcli.environments.wrappers import WrapperState
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key, TimeStep, wrap


@register("wrapper", compiled=True)
def terminal_on_life_loss(core: Core, *, lives: str = "lives") -> Core:
    """Terminates the episode when a life is lost (Mnih et al., 2015).

    The environment must log the number of remaining lives. Put this wrapper before
    `action_repeat`, which sums logged values.

    Args:
        lives: the name of the logged number of lives.
    """

    def reset(key: Key) -> tuple[WrapperState, ArrayTree]:
        state, obs = core.reset(key)
        # The number of lives is only known after the first step.
        return WrapperState(state, jnp.float32(-1)), obs

    def step(
        state: WrapperState, action: ArrayTree, noise: ArrayTree
    ) -> tuple[WrapperState, TimeStep]:
        core_state, timestep = core.step(state.core, action, noise)
        remaining = _remaining_lives(timestep, lives)
        last = timestep.last | (remaining < state.memory)
        discount = jnp.where(remaining < state.memory, 0.0, timestep.discount)
        return WrapperState(core_state, remaining), timestep._replace(
            discount=discount, last=last
        )

    return wrap(
        core,
        # No `goal_reward`: the discount depends on the lives, too.
        keeps=["render", "frame_stack", "costly_reset"],
        inner_state=lambda state: state.core,
        reset=reset,
        step=step,
    )


def _remaining_lives(timestep: TimeStep, name: str) -> Array:
    if name not in timestep.info:
        known_names = (
            ", ".join(f"`{info_name}`" for info_name in timestep.info) or "nothing"
        )
        raise RlcliError(
            f"wrapper `terminal_on_life_loss` needs an environment that logs `{name}`",
            f"this environment logs {known_names}; set the wrapper's `lives` to the "
            f"name of the number of lives",
        )
    return jnp.asarray(timestep.info[name], jnp.float32)
