"""JAX adapters: convert traceable environments of other libraries into cores.

An adapter is an environment factory that is registered as `backend/`. Its first
parameter is the rest of the name, the id. There are two kinds.

An adapter of a library whose steps JAX can trace returns a core, with `pure_core`:

    @register("environment", "brax/")
    def brax(id: str, *, options: dict[str, Any] | None = None) -> Core

An adapter of any other library returns a vector on the host: with
`host.sync_host_environment` from `gymnasium.Env`s, or with `host.host_environment` from
a vector environment. It is registered with `adapter=True`:

    @register("environment", "dm_control/", adapter=True)
    def dm_control(id, num_envs, seeds, time_limit, timeout, rendering=False, *, …)

Both import their library when called, with `libraries.import_library`, and use
Gymnasium's spaces.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.environments.episode_info import RESERVED
from rlcli.environments.observation_image import core_image
from rlcli.types import Array, ArrayTree, Core, Key, TimeStep

_OF_TIMESTEPS = RESERVED | {"discount", "return"}  # what libraries repeat in `info`


class AdapterState(NamedTuple):
    """The state of an adapted core."""

    state: ArrayTree  # the library's own state
    obs: ArrayTree  # the last observation, for rendering


def pure_core(
    reset: Callable[[Key], tuple[ArrayTree, ArrayTree]],
    step: Callable[[ArrayTree, ArrayTree, Key], tuple],
    observation: gymnasium.Space,
    action: gymnasium.Space,
    *,
    costly_reset: bool = False,
    agents: int = 0,
) -> Core:
    """Builds a core from traceable functions without batch axis and auto-reset.

        reset(key) -> state, obs
        step(state, action, key) -> state, obs, reward, terminated, truncated[, info]

    `obs` is the next observation, also at the end of an episode. It is cast to the
    dtypes of its space, and rendered as an image. If the library truncates an episode,
    `last` is true and `discount` stays 1. Of `info` it logs single numbers and
    booleans. `costly_reset` and `agents` are those of `Core`; a game of
    several agents is over when all have terminated.
    """

    def make_state(state: ArrayTree, obs: ArrayTree) -> AdapterState:
        like = spaces.zeros(observation)
        cast = jax.tree.map(
            lambda x, like_leaf: jnp.asarray(x).astype(like_leaf.dtype), obs, like
        )
        return AdapterState(jax.tree.map(_strong_type, state), cast)

    def core_reset(key: Key) -> tuple[AdapterState, ArrayTree]:
        state = make_state(*reset(key))
        return state, state.obs

    def core_step(
        state: AdapterState, action: ArrayTree, key: Key
    ) -> tuple[AdapterState, TimeStep]:
        result = step(state.state, action, key)
        inner_state, obs, reward, terminated, truncated, *info = result
        new_state = make_state(inner_state, obs)
        terminated = jnp.asarray(terminated, bool)
        return new_state, TimeStep(
            obs=new_state.obs,
            next_obs=new_state.obs,
            reward=jnp.asarray(reward, jnp.float32).reshape(terminated.shape),
            discount=1.0 - terminated.astype(jnp.float32),
            last=jnp.all(terminated) | jnp.asarray(truncated, bool),
            info=_single_numbers(info[0]) if info else {},
        )

    def render(state: AdapterState) -> np.ndarray:
        return core_image(observation, jax.device_get(state.obs), agents)

    return Core(
        core_reset,
        core_step,
        observation,
        action,
        render,
        costly_reset=costly_reset,
        agents=agents,
    )


def _single_numbers(info: Mapping[str, Any]) -> dict[str, Array]:
    """The numbers and booleans by name, without arrays and what `TimeStep` has."""
    kinds = bool | int | float | np.generic | np.ndarray | jax.Array
    numbers = {
        name: jnp.asarray(value)
        for name, value in info.items()
        if name not in _OF_TIMESTEPS and isinstance(value, kinds)
    }
    return {
        name: value
        for name, value in numbers.items()
        if not value.shape and (value.dtype == bool or jnp.isrealobj(value))
    }


def _strong_type(leaf: Any) -> Array:
    """Returns an array whose dtype is not weak, unlike that of a Python scalar."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf  # a key
    return jax.lax.convert_element_type(leaf, leaf.dtype)
