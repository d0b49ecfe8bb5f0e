"""Reward wrappers: scale, clip, add noise, or log."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Environment, Key, NonNegative, TimeStep


@register("wrapper")
def scale_reward(core: Environment, *, factor: float) -> Environment:
    """Multiplies every reward by `factor`; reported returns are scaled, too."""
    return _map_reward(core, lambda reward: reward * factor)


@register("wrapper")
def clip_reward(
    core: Environment, *, low: float = -1.0, high: float = 1.0
) -> Environment:
    """Clips every reward to [`low`, `high`] (Mnih et al., 2015)."""
    if isinstance(low, float) and isinstance(high, float) and low > high:
        raise RlcliError(
            f"wrapper `clip_reward` needs `low` ≤ `high`, but {low:g} > {high:g}"
        )
    return _map_reward(core, lambda reward: jnp.clip(reward, low, high))


@register("wrapper")
def reward_noise(core: Environment, *, scale: NonNegative) -> Environment:
    """Adds normal noise with standard deviation `scale` (bsuite's `noise` variants)."""

    def draw(key: Key) -> tuple[ArrayTree, Array]:
        core_key, noise_key = jax.random.split(key)
        return core.draw(core_key), jax.random.normal(noise_key)

    def step(
        state: ArrayTree, action: ArrayTree, noise: tuple[ArrayTree, Array]
    ) -> tuple[ArrayTree, TimeStep]:
        core_noise, normal = noise
        state, timestep = core.step(state, action, core_noise)
        return state, timestep._replace(reward=timestep.reward + scale * normal)

    return core._replace(draw=draw, step=step, goal_reward=None)


@register("wrapper")
def log_return(core: Environment) -> Environment:
    """Logs the rewards as `return`: metrics have `total_return`, over all episodes."""

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = core.step(state, action, noise)
        info = {**timestep.info, "return": timestep.reward}
        return state, timestep._replace(info=info)

    return core._replace(step=step)


def _map_reward(core: Environment, transform: Callable[[Array], Array]) -> Environment:
    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = core.step(state, action, noise)
        reward = transform(timestep.reward).astype(jnp.float32)
        return state, timestep._replace(reward=reward)

    def goal_reward(achieved: ArrayTree, desired: ArrayTree) -> tuple[Array, Array]:
        assert core.goal_reward is not None
        reward, discount = core.goal_reward(achieved, desired)
        return transform(reward), discount

    return core._replace(
        step=step, goal_reward=None if core.goal_reward is None else goal_reward
    )
