"""Jumanji: the adapter behind `jumanji/…`, compiled with the agent."""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces

from rlcli.distributions.action_masks import MASK
from rlcli.environments.adapters import jax_libraries
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key


@register("environment", "jumanji/")
def jumanji_adapter(
    id: str, *, action_mask: bool = True, options: dict[str, Any] | None = None
) -> Core:
    """Games and combinatorial problems of Jumanji (Bonnet et al., 2023), compiled.

    Observations are Dicts. With `action_mask` they contain the legal actions, if there
    is one flag for each action or combination of actions; combinations are then one
    Discrete action. `options` are arguments of the class. Rewards of several agents are
    added. https://github.com/instadeepai/jumanji
    """
    encoded = jax_libraries.encode_options(options)
    env, observation, action = _make_env(id, action_mask, encoded)
    spec = env.action_spec

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, timestep = env.reset(jax.random.key_data(key))  # the state keeps a key
        return state, jax_libraries.read_fields(observation, timestep.observation)

    def step(state: Any, choice: Array, key: Key) -> tuple:
        if isinstance(action, spaces.Discrete) and spec.shape:
            choice = jnp.stack(jnp.unravel_index(choice, tuple(spec.num_values)))
        state, timestep = env.step(state, jnp.asarray(choice, spec.dtype))
        obs = jax_libraries.read_fields(observation, timestep.observation)
        terminated = timestep.last() & jnp.all(timestep.discount == 0)
        ends, extras = (terminated, timestep.last()), timestep.extras or {}
        return state, obs, jnp.sum(timestep.reward), *ends, extras

    name = f"jumanji/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_env(id: str, mask: bool, options: str) -> tuple[Any, Any, Any]:
    """Returns the environment and its spaces, from options in JSON."""
    jumanji = jax_libraries.import_jax_library("jumanji", "jumanji")
    jax_libraries.check_id("jumanji/", id, jumanji.registered_environments())
    make = functools.partial(jumanji.make, id, **json.loads(options))
    hint = "`options` are arguments of its class in `jumanji.environments`"
    env = jax_libraries.make_concrete(f"jumanji/{id}", make, hint)
    observation = jax_libraries.convert_spec(env.observation_spec)
    action = jax_libraries.convert_spec(env.action_spec)
    members = dict(observation.spaces)
    flags = members.pop(MASK, None)
    if mask and flags is not None:
        if isinstance(action, spaces.MultiDiscrete) and flags.shape == (*action.nvec,):
            action = spaces.Discrete(int(action.nvec.prod()))
        if isinstance(action, spaces.Discrete):
            members[MASK] = jax_libraries.bounded_box(0, 1, (int(action.n),), bool)
    return env, spaces.Dict(members), action
