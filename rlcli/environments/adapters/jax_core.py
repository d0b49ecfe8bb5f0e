"""Adapters: what all of them share that lend us the environments of another library.

An adapter is an environment's factory that is registered as `backend/` and takes the
rest of the name, the id, before anything else. There are two kinds.

Of a library whose steps JAX can trace it makes a core, with `pure_core`:

    @register("environment", "brax/")
    def brax(id: str, *, options: dict[str, Any] | None = None) -> Environment

Of any other it makes a vector on the host, with `host.sync_host_environment` of
`gymnasium.Env`s, or with `host.host_environment` of whatever steps many at once; the
fact `adapter` says so:

    @register("environment", "dm_control/", adapter=True)
    def dm_control(id, num_envs, seeds, time_limit, timeout, rendering=False, *, …)

Either imports its library when it is called, by `libraries.import_library`, and shows
spaces of Gymnasium's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.environments.observation_image import observation_image
from rlcli.types import Array, ArrayTree, Environment, Key, TimeStep


class AdapterState(NamedTuple):
    """What an adapted core remembers."""

    state: ArrayTree  # the library's own
    obs: ArrayTree  # what it showed last, to be drawn


def pure_core(
    begin: Callable[[Key], tuple[ArrayTree, ArrayTree]],
    go: Callable[[ArrayTree, ArrayTree, Key], tuple],
    observation: gymnasium.Space,
    action: gymnasium.Space,
) -> Environment:
    """A core of functions that JAX can trace, without batch and auto-reset.

        begin(key) -> state, obs
        go(state, action, key) -> state, obs, reward, terminated, truncated

    `obs` is what the step led to, also where it ends an episode. It is cast to the
    dtypes of its space, and drawn. A limit of the library's own may truncate: there
    `last` holds, and `discount` stays 1.
    """

    def make_state(state: ArrayTree, obs: ArrayTree) -> AdapterState:
        like = spaces.zeros(observation)
        cast = jax.tree.map(
            lambda x, like_leaf: jnp.asarray(x).astype(like_leaf.dtype), obs, like
        )
        return AdapterState(jax.tree.map(_strong_type, state), cast)

    def reset(key: Key) -> tuple[AdapterState, ArrayTree]:
        after = make_state(*begin(key))
        return after, after.obs

    def step(
        state: AdapterState, action: ArrayTree, key: Key
    ) -> tuple[AdapterState, TimeStep]:
        inner_state, obs, reward, terminated, truncated = go(state.state, action, key)
        after, terminated = make_state(inner_state, obs), jnp.asarray(terminated, bool)
        return after, TimeStep(
            obs=after.obs,
            next_obs=after.obs,
            reward=jnp.asarray(reward, jnp.float32).reshape(()),
            discount=1.0 - terminated.astype(jnp.float32),
            last=terminated | jnp.asarray(truncated, bool),
            info={},
        )

    def render(state: AdapterState) -> np.ndarray:
        return observation_image(observation, jax.device_get(state.obs))

    return Environment(reset, step, observation, action, render)


def _strong_type(leaf: Any) -> Array:
    """An array whose dtype no longer depends on what it meets, as a plain 0 has it."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf  # a key
    return jax.lax.convert_element_type(leaf, leaf.dtype)
