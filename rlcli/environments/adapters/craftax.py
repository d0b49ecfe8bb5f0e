"""Craftax: the adapter behind `craftax/…`, compiled with the agent."""

import dataclasses
import functools
import json
from typing import Any

import jax
import numpy as np

from rlcli.environments.adapters import jax_libraries
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key

IDS = [
    f"Craftax-{kind}-v1"
    for kind in ("Symbolic", "Pixels", "Classic-Symbolic", "Classic-Pixels")
]


@register("environment", "craftax/")
def craftax_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Craftax and Craftax-Classic (Matthews et al., 2024), compiled with the agent.

    `options` are fields of `EnvParams` and `StaticEnvParams`. The environment's own
    limit, `max_timesteps`, truncates; `time_limit` can only shorten episodes. The first
    use of pixels takes minutes. https://github.com/MichaelTMatthews/Craftax
    """
    env, params = _make_env(id, jax_libraries.encode_options(options))
    endless = params.replace(max_timesteps=np.iinfo(np.int32).max)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        obs, state = env.reset_env(jax.random.key_data(key), params)
        return state, obs

    def step(state: Any, action: Array, key: Key) -> tuple:
        obs, state, reward, done, info = env.step_env(
            jax.random.key_data(key), state, action, params
        )
        terminated = env.is_terminal(state, endless)
        return state, obs, reward, terminated, done & ~terminated, info

    convert = jax_libraries.convert_gymnax_space
    observation = convert(env.observation_space(params))
    action = convert(env.action_space(params))
    name = f"craftax/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_env(id: str, options: str) -> tuple[Any, Any]:
    """Returns the environment and its parameters, from options in JSON."""
    library = jax_libraries.import_jax_library("craftax.craftax_env", "craftax")
    jax_libraries.check_id("craftax/", id, IDS)

    def make() -> tuple[Any, Any]:
        env = library.make_craftax_env_from_name(id, auto_reset=False)
        static, values = env.static_env_params, json.loads(options)
        names = {field.name for field in dataclasses.fields(static)} & values.keys()
        static = static.replace(**{name: values.pop(name) for name in names})
        env = type(env)(static_env_params=static)
        return env, env.default_params.replace(**values)

    hint = "`options` are fields of its `EnvParams` and `StaticEnvParams`"
    return jax_libraries.make_concrete(f"craftax/{id}", make, hint)
