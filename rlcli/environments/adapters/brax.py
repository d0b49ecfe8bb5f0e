"""Brax: the adapter behind `brax/…`, compiled with the agent."""

import functools
import json
from typing import Any, Literal

import gymnasium
import numpy as np

from rlcli.environments.adapters import jax_libraries
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key

Backend = Literal["generalized", "spring", "positional", "mjx"]


@register("environment", "brax/", time_limit=1_000)
def brax_adapter(
    id: str, *, backend: Backend | None = None, options: dict[str, Any] | None = None
) -> Core:
    """Robots of Brax (Freeman et al., 2021), compiled with the agent.

    `backend` is the physics: null is that of the environment, for most `generalized`.
    `options` are keyword arguments of the class. Actions are in [-1, 1]. The default
    time limit is 1000 steps, as in Brax's training. https://github.com/google/brax
    """
    keywords = (options or {}) | ({"backend": backend} if backend else {})
    env, observation = _make_env(id, jax_libraries.encode_options(keywords))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state = env.reset(key)
        return state, state.obs

    def step(state: Any, action: Array, key: Key) -> tuple:
        del key  # only the initial state is random
        # Copied: environments of Brax change these dicts in place.
        copies = {"metrics": dict(state.metrics), "info": dict(state.info)}
        state = env.step(state.replace(**copies), action)
        is_over = state.done != 0
        return state, state.obs, state.reward, is_over, False, state.metrics

    action = gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
    name = f"brax/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_env(id: str, options: str) -> tuple[Any, gymnasium.Space]:
    """Returns the environment and its observation space, from options in JSON."""
    envs = jax_libraries.import_jax_library("brax.envs", "brax")
    jax_libraries.check_id("brax/", id, envs._envs)
    name = f"brax/{id}"
    make = functools.partial(envs.get_environment, id, **json.loads(options))
    hint = "`backend` and `options` are arguments of its class in `brax.envs`"
    env = jax_libraries.make_concrete(name, make, hint)
    shapes = jax_libraries.observation_shapes(name, lambda key: env.reset(key).obs)
    return env, jax_libraries.space_like(shapes)
