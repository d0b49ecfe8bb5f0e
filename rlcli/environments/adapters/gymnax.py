"""Gymnax: the adapter behind `gymnax/…`, compiled with the agent."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.adapters.jax_core import pure_core
from rlcli.errors import RlcliError, suggest
from rlcli.registry import register
from rlcli.registry.libraries import import_library
from rlcli.types import Array, ArrayTree, Environment, Key

EXTRA = "gymnax"
# By the dtype kind of a default: the kinds that values may have, and their name.
_ACCEPTED_KINDS = {
    "b": ("b", "bool"),
    "i": ("iu", "int"),
    "f": ("iuf", "float"),
}


@register("environment", "gymnax/")
def gymnax_adapter(id: str, *, options: dict[str, Any] | None = None) -> Environment:
    """Environments of gymnax (https://github.com/RobertTLange/gymnax), compiled.

    `options` are fields of the parameters and keyword arguments of the class. The
    environment's own time limit (`max_steps_in_episode`) truncates; `time_limit` can
    only shorten episodes. Observations have the dtypes of their space.
    """
    env, params, observation, action = _make_env(
        id, json.dumps(options or {}, default=_to_json_value)
    )

    def begin(key: Key) -> tuple[ArrayTree, ArrayTree]:
        obs, state = env.reset_env(key, params)
        return state, obs

    def go(state: ArrayTree, action: Array, key: Key) -> tuple:
        obs, state, reward, done, _ = env.step_env(key, state, action, params)
        terminated, truncated = _termination(env, params, state, done)
        return state, obs, reward, terminated, truncated

    return pure_core(begin, go, observation, action)


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
    gymnax = import_library("gymnax", EXTRA)
    name = f"environment `gymnax/{id}`"
    if id not in gymnax.registered_envs:
        hint = suggest(id, gymnax.registered_envs, "gymnax/")
        raise RlcliError(f"there is no {name}", hint)
    given_options = json.loads(options)
    with jax.ensure_compile_time_eval():
        try:
            _, params = gymnax.make(id)
            fields = {
                field.name for field in dataclasses.fields(params)
            } & given_options.keys()
            keywords = {
                key: given_options[key] for key in given_options.keys() - fields
            }
            env, params = gymnax.make(id, **keywords)
        except Exception as error:  # foreign code may raise anything
            raise RlcliError(
                f"{name} cannot be made: {type(error).__name__}: {error}",
                "`options` are fields of its parameters and arguments of its class",
            ) from error
        changes = {
            key: _convert_option(
                getattr(params, key), given_options[key], f"{name}: `{key}`"
            )
            for key in fields
        }
        params = params.replace(**changes)
        observation = _convert_space(env.observation_space(params))
        return env, params, observation, _convert_space(env.action_space(params))


def _to_json_value(value: Any) -> Any:
    """Converts an array into a number or a list, for JSON."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    raise RlcliError(
        f"`options` contains {value!r}",
        "values of `options` are numbers, strings, booleans, and lists of these",
    )


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


def _convert_space(space: Any) -> gymnasium.Space:
    """Converts a space of gymnax into one of Gymnasium."""
    members = getattr(space, "spaces", None)
    if isinstance(members, dict):
        return gymnasium.spaces.Dict(
            {name: _convert_space(member) for name, member in members.items()}
        )
    if members is not None:
        return gymnasium.spaces.Tuple([_convert_space(member) for member in members])
    if hasattr(space, "n"):
        return gymnasium.spaces.Discrete(int(space.n))
    dtype: Any = np.dtype(jnp.dtype(space.dtype)).type
    low = np.broadcast_to(np.asarray(space.low, dtype), space.shape)
    high = np.broadcast_to(np.asarray(space.high, dtype), space.shape)
    return gymnasium.spaces.Box(low, high, space.shape, dtype)
