"""Wrappers of observations: what the agent gets to see."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax.flatten_util import ravel_pytree

from rlcli import action_masks
from rlcli.errors import RlcliError
from rlcli.preprocessing import Function, each_member
from rlcli.registry import register
from rlcli.spaces import describe, flat_size, flatten, zeros
from rlcli.types import Array, ArrayTree, Environment, Key, NonNegative, TimeStep


@register("wrapper")
def observation_noise(core: Environment, *, scale: NonNegative) -> Environment:
    """Adds normal noise of that standard deviation to every number that is seen.

    The space loses its bounds, for the noise has none. An action mask stays as it is.
    """
    observation, mask = action_masks.apart(core.observation)
    free, _ = each_member(_unbounded)(observation)
    size = flat_size(observation)
    _, as_seen = ravel_pytree(zeros(observation))

    def noisy(obs: ArrayTree, normal: Array) -> ArrayTree:
        seen, noise = action_masks.without(obs), as_seen(scale * normal)
        seen = jax.tree.map(lambda each, more: each + more, seen, noise)
        return action_masks.beside(seen, action_masks.carried(obs))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        core_key, noise_key = jax.random.split(key)
        state, obs = core.reset(core_key)
        return state, noisy(obs, jax.random.normal(noise_key, (size,)))

    def draw(key: Key) -> tuple[ArrayTree, Array]:
        core_key, noise_key = jax.random.split(key)
        return core.draw(core_key), jax.random.normal(noise_key, (size,))

    def step(
        state: ArrayTree, action: ArrayTree, noise: tuple[ArrayTree, Array]
    ) -> tuple[ArrayTree, TimeStep]:
        core_noise, normal = noise
        state, timestep = core.step(state, action, core_noise)
        seen = noisy(timestep.next_obs, normal)
        return state, timestep._replace(obs=seen, next_obs=seen)

    shown = action_masks.beside(free, mask)
    return core._replace(reset=reset, draw=draw, step=step, observation=shown)


def _unbounded(space: gymnasium.Space) -> tuple[gymnasium.Space, Function]:
    """A Box of real numbers without its bounds."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise RlcliError(
            "wrapper `observation_noise` needs real numbers, and the environment has "
            f"{describe(space)}",
            "`flatten` before it in `wrappers` makes such of any",
        )
    free = spaces.Box(-np.inf, np.inf, space.shape, space.dtype.type)
    return free, lambda obs: obs


@register("wrapper")
def previous(core: Environment) -> Environment:
    """Shows beside the observation what was done last, and what came of it.

    A vector: the observation, flat (a choice one-hot), the last action likewise, its
    reward, and 1 in an episode's first step, when the two before are 0 (Duan et al.,
    2016, https://arxiv.org/abs/1611.02779; Wang et al., 2016).
    """
    observation, mask = action_masks.apart(core.observation)
    size = flat_size(observation) + flat_size(core.action) + 2

    def seen(obs: ArrayTree, action: Array, reward: Array, first: float) -> ArrayTree:
        vector = flatten(observation, action_masks.without(obs))
        tail = jnp.stack([reward, jnp.float32(first)])
        vector = jnp.concatenate([vector, action, tail])
        return action_masks.beside(vector, action_masks.carried(obs))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = core.reset(key)
        nothing = jnp.zeros(flat_size(core.action))
        return state, seen(obs, nothing, jnp.float32(0), 1.0)

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = core.step(state, action, noise)
        done = flatten(core.action, action)
        obs = seen(timestep.next_obs, done, timestep.reward, 0.0)
        return state, timestep._replace(obs=obs, next_obs=obs)

    vector = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    shown = action_masks.beside(vector, mask)
    return core._replace(reset=reset, step=step, observation=shown)
