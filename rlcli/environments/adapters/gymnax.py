"""Gymnax: the adapter behind `gymnax/…`, compiled with the agent."""

import dataclasses
import functools
import json
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.adapters import jax_libraries
from rlcli.environments.adapters.jax_core import pure_core
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key

EXTRA = "gymnax"
# By the dtype kind of a default: the kinds that values may have, and their name.
_ACCEPTED_KINDS = {"b": ("b", "bool"), "i": ("iu", "int"), "f": ("iuf", "float")}


@register("environment", "gymnax/")
def gymnax_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Environments of gymnax (https://github.com/RobertTLange/gymnax), compiled.

    `options` are fields of the parameters and keyword arguments of the class. The
    environment's own time limit (`max_steps_in_episode`) truncates; `time_limit` can
    only shorten episodes. Observations have the dtypes of their space.
    """
    env, params, observation, action = _make_env(
        id, jax_libraries.encode_options(options)
    )

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        obs, state = env.reset_env(key, params)
        return state, obs

    def step(state: ArrayTree, action: Array, key: Key) -> tuple:
        obs, state, reward, done, info = env.step_env(key, state, action, params)
        terminated, truncated = _termination(env, params, state, done)
        return state, obs, reward, terminated, truncated, info

    return pure_core(reset, step, observation, action)


def _termination(env: Any, params: Any, state: Any, done: Array) -> tuple[Array, Array]:
    """Returns whether an episode terminated, and whether it is truncated.

    A `step` of six values distinguishes the two. In gymnax before 1.0, `step` returns
    five values and `done` means either, so the state determines which.
    """
    if hasattr(env, "is_truncated"):
        return done, env.is_truncated(state, params)
    endless = params.replace(max_steps_in_episode=np.iinfo(np.int32).max)
    is_terminal = done & env.is_terminal(state, endless)
    return is_terminal, done & ~is_terminal


@functools.cache
def _make_env(
    id: str, options: str
) -> tuple[Any, Any, gymnasium.Space, gymnasium.Space]:
    """Returns the environment, its parameters and its spaces, from options in JSON.

    Cached, since each trace rebuilds parts; so no array of it may be a JAX tracer.
    """
    gymnax = jax_libraries.import_jax_library("gymnax", EXTRA)
    jax_libraries.check_id("gymnax/", id, gymnax.registered_envs)
    given_options = json.loads(options)

    def make() -> tuple[Any, Any, set[str]]:
        _, params = gymnax.make(id)
        fields = {field.name for field in dataclasses.fields(params)}
        keywords = {key: given_options[key] for key in given_options.keys() - fields}
        return *gymnax.make(id, **keywords), fields & given_options.keys()

    hint = "`options` are fields of its parameters and arguments of its class"
    env, params, fields = jax_libraries.make_concrete(f"gymnax/{id}", make, hint)
    with jax.ensure_compile_time_eval():
        changes = {
            key: _convert_option(
                getattr(params, key),
                given_options[key],
                f"environment `gymnax/{id}`: `{key}`",
            )
            for key in fields
        }
        params = params.replace(**changes)
        convert = jax_libraries.convert_gymnax_space
        observation = convert(env.observation_space(params))
        return env, params, observation, convert(env.action_space(params))


def _convert_option(default: Any, value: Any, owner: str) -> Any:
    """Converts a value that replaces a default; it needs the shape of the default."""
    like = np.asarray(default)
    kinds, description = _ACCEPTED_KINDS[like.dtype.kind]
    try:
        array = np.asarray(value)
        fits = array.shape == like.shape and array.dtype.kind in kinds
    except ValueError:  # lists of different lengths
        fits = False
    if not fits:
        shape_note = f" of shape {like.shape}" if like.ndim else ""
        raise RlcliError(f"{owner} is {value!r}", f"expected {description}{shape_note}")
    return jnp.asarray(value, like.dtype) if like.ndim else value
