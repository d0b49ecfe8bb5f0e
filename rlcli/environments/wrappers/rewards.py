"""Wrappers of rewards: scale, clip, add noise, or log; and of the end of episodes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rlcli.environments.wrappers import WrapperState
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key, NonNegative, Step, TimeStep, wrap

_KEPT = ("render", "frame_stack", "costly_reset")  # nothing about rewards


@register("wrapper")
def scale_reward(core: Core, *, factor: float) -> Core:
    """Multiplies every reward by `factor`; reported returns are scaled, too."""
    return _map_reward(core, lambda reward: reward * factor)


@register("wrapper")
def clip_reward(core: Core, *, low: float = -1.0, high: float = 1.0) -> Core:
    """Clips every reward to [`low`, `high`] (Mnih et al., 2015)."""
    if isinstance(low, float) and isinstance(high, float) and low > high:
        raise RlcliError(
            f"wrapper `clip_reward` needs `low` ≤ `high`, but {low:g} > {high:g}"
        )
    return _map_reward(core, lambda reward: jnp.clip(reward, low, high))


@register("wrapper")
def reward_noise(core: Core, *, scale: NonNegative) -> Core:
    """Adds normal noise with standard deviation `scale` (bsuite's `noise` variants)."""

    def draw(key: Key) -> tuple[ArrayTree, Array]:
        core_key, noise_key = jax.random.split(key)
        return core.draw(core_key), jax.random.normal(noise_key)

    def step(
        state: ArrayTree, action: ArrayTree, noise: tuple[ArrayTree, Array]
    ) -> Step:
        core_noise, normal = noise
        state, timestep = core.step(state, action, core_noise)
        return state, timestep._replace(reward=timestep.reward + scale * normal)

    return wrap(core, keeps=_KEPT, draw=draw, step=step)


@register("wrapper", compiled=True)
def log_return(core: Core) -> Core:
    """Logs the rewards as `return`: metrics have `total_return`, over all episodes."""

    def step(state: ArrayTree, action: ArrayTree, noise: ArrayTree) -> Step:
        state, timestep = core.step(state, action, noise)
        info = {**timestep.info, "return": timestep.reward}
        return state, timestep._replace(info=info)

    return wrap(core, keeps=[*_KEPT, "goal_reward"], step=step)


def _map_reward(core: Core, transform: Callable[[Array], Array]) -> Core:
    def step(state: ArrayTree, action: ArrayTree, noise: ArrayTree) -> Step:
        state, timestep = core.step(state, action, noise)
        reward = transform(timestep.reward).astype(jnp.float32)
        return state, timestep._replace(reward=reward)

    def goal_reward(achieved: ArrayTree, desired: ArrayTree) -> tuple[Array, Array]:
        assert core.goal_reward is not None
        reward, discount = core.goal_reward(achieved, desired)
        return transform(reward), discount

    changed = None if core.goal_reward is None else goal_reward
    return wrap(core, keeps=_KEPT, step=step, goal_reward=changed)


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

    def step(state: WrapperState, action: ArrayTree, noise: ArrayTree) -> Step:
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
        known_names = ", ".join(f"`{each}`" for each in timestep.info) or "nothing"
        raise RlcliError(
            f"wrapper `terminal_on_life_loss` needs an environment that logs `{name}`",
            f"this environment logs {known_names}; set the wrapper's `lives` to the "
            f"name of the number of lives",
        )
    return jnp.asarray(timestep.info[name], jnp.float32)
