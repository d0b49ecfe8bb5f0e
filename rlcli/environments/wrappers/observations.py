"""Observation wrappers: add noise, or the previous action and reward."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax.flatten_util import ravel_pytree

from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.preprocessing import ObservationFunction, map_members
from rlcli.registry import register
from rlcli.spaces import describe, flat_size, flatten, zeros
from rlcli.spaces.canonical import canonical_action
from rlcli.types import Array, ArrayTree, Core, Key, NonNegative, Step, wrap


@register("wrapper")
def observation_noise(core: Core, *, scale: NonNegative) -> Core:
    """Adds normal noise with standard deviation `scale` to every observed number.

    The observation space becomes unbounded. An action mask stays unchanged.
    """
    observation, mask = action_masks.split_mask(core.observation)
    unbounded, _ = map_members(_remove_bounds)(observation)
    size = flat_size(observation)
    _, unravel = ravel_pytree(zeros(observation))

    def add_noise(obs: ArrayTree, normal: Array) -> ArrayTree:
        noise = unravel(jnp.asarray(scale * normal))
        noisy_obs = jax.tree.map(jnp.add, action_masks.remove_mask(obs), noise)
        return action_masks.add_mask(noisy_obs, action_masks.get_mask(obs))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        core_key, noise_key = jax.random.split(key)
        state, obs = core.reset(core_key)
        return state, add_noise(obs, jax.random.normal(noise_key, (size,)))

    def draw(key: Key) -> tuple[ArrayTree, Array]:
        core_key, noise_key = jax.random.split(key)
        return core.draw(core_key), jax.random.normal(noise_key, (size,))

    def step(
        state: ArrayTree, action: ArrayTree, noise: tuple[ArrayTree, Array]
    ) -> Step:
        core_noise, normal = noise
        state, timestep = core.step(state, action, core_noise)
        noisy_obs = add_noise(timestep.next_obs, normal)
        return state, timestep._replace(obs=noisy_obs, next_obs=noisy_obs)

    space = action_masks.add_mask(unbounded, mask)
    keeps = ["render", "costly_reset"]  # the observed goal is not the achieved one
    return wrap(core, keeps=keeps, reset=reset, draw=draw, step=step, observation=space)


def _remove_bounds(
    space: gymnasium.Space,
) -> tuple[gymnasium.Space, ObservationFunction]:
    """A Box of real numbers with its bounds removed."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise RlcliError(
            "wrapper `observation_noise` needs real numbers, but the environment has "
            f"{describe(space)}",
            "put `flatten` before it in `wrappers`",
        )
    unbounded = spaces.Box(-np.inf, np.inf, space.shape, space.dtype.type)
    return unbounded, lambda obs: obs


@register("wrapper")
def previous(core: Core) -> Core:
    """Adds the previous action and reward to the observation.

    The observation becomes a vector: the flat observation and the flat last action
    (discrete values one-hot, bounded ones in half-widths of their Box), the last
    reward, and 1 in the first step of an episode, when action and reward are 0 (Duan et
    al., 2016, https://arxiv.org/abs/1611.02779; Wang et al., 2016).
    """
    observation, mask = action_masks.split_mask(core.observation)
    canonical = canonical_action(core.action)
    size = flat_size(observation) + flat_size(canonical.space) + 2

    def observe(
        obs: ArrayTree, action: Array, reward: Array, first: float
    ) -> ArrayTree:
        vector = flatten(observation, action_masks.remove_mask(obs))
        tail = jnp.stack([reward, jnp.float32(first)])
        vector = jnp.concatenate([vector, action, tail])
        return action_masks.add_mask(vector, action_masks.get_mask(obs))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = core.reset(key)
        no_action = jnp.zeros(flat_size(canonical.space))
        return state, observe(obs, no_action, jnp.float32(0), 1.0)

    def step(state: ArrayTree, action: ArrayTree, noise: ArrayTree) -> Step:
        state, timestep = core.step(state, action, noise)
        last_action = flatten(
            canonical.space, canonical.to_canonical(jax.tree.map(jnp.asarray, action))
        )
        obs = observe(timestep.next_obs, last_action, timestep.reward, 0.0)
        return state, timestep._replace(obs=obs, next_obs=obs)

    vector = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    space, keeps = action_masks.add_mask(vector, mask), ["render", "costly_reset"]
    return wrap(core, keeps=keeps, reset=reset, step=step, observation=space)
