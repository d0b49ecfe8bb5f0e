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
from rlcli.preprocessing import ObservationFunction, map_members
from rlcli.registry import register
from rlcli.spaces import describe, flat_size, flatten, zeros
from rlcli.types import Array, ArrayTree, Environment, Key, NonNegative, TimeStep


@register("wrapper")
def observation_noise(core: Environment, *, scale: NonNegative) -> Environment:
    """Adds normal noise of that standard deviation to every number that is seen.

    The space loses its bounds, for the noise has none. An action mask stays as it is.
    """
    observation, mask = action_masks.split_mask(core.observation)
    free, _ = map_members(_unbounded_box)(observation)
    size = flat_size(observation)
    _, as_seen = ravel_pytree(zeros(observation))

    def noisy(obs: ArrayTree, normal: Array) -> ArrayTree:
        noisy_obs, noise = action_masks.remove_mask(obs), as_seen(scale * normal)
        noisy_obs = jax.tree.map(lambda value, more: value + more, noisy_obs, noise)
        return action_masks.add_mask(noisy_obs, action_masks.get_mask(obs))

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
        noisy_obs = noisy(timestep.next_obs, normal)
        return state, timestep._replace(obs=noisy_obs, next_obs=noisy_obs)

    observation_space = action_masks.add_mask(free, mask)
    return core._replace(
        reset=reset, draw=draw, step=step, observation=observation_space
    )


def _unbounded_box(
    space: gymnasium.Space,
) -> tuple[gymnasium.Space, ObservationFunction]:
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
    observation, mask = action_masks.split_mask(core.observation)
    size = flat_size(observation) + flat_size(core.action) + 2

    def observe(
        obs: ArrayTree, action: Array, reward: Array, first: float
    ) -> ArrayTree:
        vector = flatten(observation, action_masks.remove_mask(obs))
        tail = jnp.stack([reward, jnp.float32(first)])
        vector = jnp.concatenate([vector, action, tail])
        return action_masks.add_mask(vector, action_masks.get_mask(obs))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = core.reset(key)
        nothing = jnp.zeros(flat_size(core.action))
        return state, observe(obs, nothing, jnp.float32(0), 1.0)

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = core.step(state, action, noise)
        done = flatten(core.action, action)
        obs = observe(timestep.next_obs, done, timestep.reward, 0.0)
        return state, timestep._replace(obs=obs, next_obs=obs)

    vector = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    observation_space = action_masks.add_mask(vector, mask)
    return core._replace(reset=reset, step=step, observation=observation_space)
