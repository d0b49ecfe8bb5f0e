"""Wrappers of observations: in which form they are shown."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.spaces import bounds, describe, dtype, flat_size, flatten
from rlcli.types import Array, ArrayTree, Count, Environment, Key, TimeStep
from rlcli.wrappers import Wrapped


@register("wrapper", "flatten")
def flattened(core: Environment) -> Environment:
    """Shows any observation as one vector of float32, its choices one-hot.

    As `gymnasium.spaces.flatten` does. Networks do that by themselves; this is for what
    comes after it in the list, and for other libraries.
    """
    return _as_vector(core)


@register("wrapper")
def one_hot(core: Environment) -> Environment:
    """Shows a choice of n as n numbers, all 0 but for its own 1; several in a row."""
    if not isinstance(core.observation, spaces.Discrete | spaces.MultiDiscrete):
        raise RlcliError(
            "wrapper `one_hot` needs observations that are choices, and the "
            f"environment has {describe(core.observation)}",
            "`flatten` makes a vector of any",
        )
    return _as_vector(core)


@register("wrapper")
def frame_stack(core: Environment, *, frames: Count = 4) -> Environment:
    """Shows the last observations together, `[frames, ...]`, the newest last.

    An episode begins with its first one as often as needed (Mnih et al., 2015,
    https://doi.org/10.1038/nature14236).
    """
    space = core.observation
    if not isinstance(space, spaces.Box | spaces.Discrete):
        raise RlcliError(
            "wrapper `frame_stack` needs a Box or a choice, and the environment has "
            f"{describe(space)}",
            "`flatten` before it makes a vector of any",
        )

    def reset(key: Key) -> tuple[Wrapped, Array]:
        state, obs = core.reset(key)
        seen = jnp.broadcast_to(obs, (frames, *jnp.shape(obs)))
        return Wrapped(state, seen), seen

    def step(
        state: Wrapped, action: ArrayTree, noise: ArrayTree
    ) -> tuple[Wrapped, TimeStep]:
        inner, timestep = core.step(state.core, action, noise)
        seen = jnp.concatenate([state.memory[1:], timestep.next_obs[None]])
        return Wrapped(inner, seen), timestep._replace(obs=seen, next_obs=seen)

    return core._replace(
        reset=reset,
        step=step,
        observation=_stacked(space, frames),
        render=lambda state: core.render(state.core),
    )


@register("wrapper")
def expose_state(core: Environment) -> Environment:
    """Shows the state itself beside the observation, for what plans with the rules.

    A Dict: `observation`, and `state`, a tuple of the state's arrays in the order of
    `jax.tree.leaves`. `core.step` goes on from there.
    """
    state, _ = jax.eval_shape(core.reset, jax.random.key(0))
    leaves = jax.tree.leaves(state)
    if any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves):
        raise RlcliError(
            "wrapper `expose_state` cannot show a state with a random key in it",
            "leave it out of `wrappers`",
        )

    def seen(state: ArrayTree, obs: ArrayTree) -> dict[str, ArrayTree]:
        return {"observation": obs, "state": tuple(jax.tree.leaves(state))}

    exposed = spaces.Tuple([_unbounded(leaf) for leaf in leaves])
    space = spaces.Dict({"observation": core.observation, "state": exposed})
    return _showing(core, seen, space)


def _as_vector(core: Environment) -> Environment:
    """The core, with its observations as vectors of float32."""
    space, size = core.observation, (flat_size(core.observation),)
    low, high = np.full(size, -np.inf, np.float32), np.full(size, np.inf, np.float32)
    if not isinstance(space, spaces.Tuple | spaces.Dict):
        one_hots = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        least, most = (0.0, 1.0) if one_hots else bounds(space)
        low = np.broadcast_to(np.ravel(least), size).astype(np.float32)
        high = np.broadcast_to(np.ravel(most), size).astype(np.float32)

    vector = spaces.Box(low, high, dtype=np.float32)
    return _showing(core, lambda state, obs: flatten(space, obs), vector)


def _showing(
    core: Environment,
    seen: Callable[[ArrayTree, ArrayTree], ArrayTree],
    space: gymnasium.Space,
) -> Environment:
    """The core, with `seen(state, obs)`, an element of that space, as observation."""

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = core.reset(key)
        return state, seen(state, obs)

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = core.step(state, action, noise)
        obs = seen(state, timestep.next_obs)
        return state, timestep._replace(obs=obs, next_obs=obs)

    return core._replace(reset=reset, step=step, observation=space)


def _stacked(space: spaces.Box | spaces.Discrete, frames: int) -> gymnasium.Space:
    if isinstance(space, spaces.Discrete):
        n, start = np.full(frames, space.n), np.full(frames, space.start)
        return spaces.MultiDiscrete(n, dtype=dtype(space).type, start=start)
    low, high = (np.repeat(each[None], frames, axis=0) for each in bounds(space))
    return spaces.Box(low, high, dtype=space.dtype.type)


def _unbounded(leaf: jax.ShapeDtypeStruct) -> spaces.Box:
    """A Box of all that an array of that kind can hold."""
    if leaf.dtype == bool:
        return spaces.Box(0, 1, leaf.shape, leaf.dtype.type)
    if jnp.issubdtype(leaf.dtype, jnp.integer):
        limits = jnp.iinfo(leaf.dtype)
        return spaces.Box(limits.min, limits.max, leaf.shape, leaf.dtype.type)
    return spaces.Box(-np.inf, np.inf, leaf.shape, leaf.dtype.type)
