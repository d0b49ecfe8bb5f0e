"""Wrappers of observations: in which form they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli import action_masks
from rlcli.errors import RlcliError
from rlcli.preprocessing import Preprocess, composed, functions
from rlcli.preprocessing.frame_stack import showing
from rlcli.registry import register
from rlcli.types import ArrayTree, Count, Environment, Key, RenderState, TimeStep


@register("wrapper")
def one_hot(core: Environment) -> Environment:
    """Shows choices as vectors of zeros with a one; what is no choice as it is."""
    return _made(core, functions.one_hot())


@register("wrapper")
def flatten(core: Environment) -> Environment:
    """Shows any observation as one vector of float32, its choices one-hot.

    Networks do that by themselves; this is for what comes after it in the list, and for
    other libraries.
    """
    return _made(core, functions.flatten())


@register("wrapper")
def frame_stack(core: Environment, *, frames: Count = 4, axis: int = -1) -> Environment:
    """Shows the last observations joined along `axis`, the newest last.

    An episode begins with its first one as often as needed (Mnih et al., 2015,
    https://doi.org/10.1038/nature14236).
    """
    return _made(core, functions.frame_stack(frames=frames, axis=axis))


@register("wrapper")
def expose_state(core: Environment) -> Environment:
    """Shows the state itself beside the observation, for what plans with the rules.

    A Dict: `observation`, and `state`, a tuple of the state's arrays in the order of
    `jax.tree.leaves`. `core.step` goes on from there.
    """
    state, _ = jax.eval_shape(core.reset, jax.random.key(0))
    leaves = jax.tree.leaves(_without_details(state))
    if any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves):
        raise RlcliError(
            "wrapper `expose_state` cannot show a state with a random key in it",
            "leave it out of `wrappers`",
        )

    def seen(state: ArrayTree, obs: ArrayTree) -> dict[str, ArrayTree]:
        leaves = jax.tree.leaves(_without_details(state))
        return {"observation": obs, "state": tuple(leaves)}

    exposed = spaces.Tuple([_unbounded(leaf) for leaf in leaves])
    observation, _ = action_masks.apart(core.observation)
    space = spaces.Dict({"observation": observation, "state": exposed})
    return _showing(core, seen, space)


def _without_details(state: ArrayTree) -> ArrayTree:
    """The state as it is without `rendering`: policies are trained on that."""

    def is_rendered(node: Any) -> bool:
        return isinstance(node, RenderState)

    return jax.tree.map(
        lambda node: node.state if is_rendered(node) else node,
        state,
        is_leaf=is_rendered,
    )


def _made(core: Environment, step: Preprocess) -> Environment:
    """The core, showing what a function of `preprocess` makes of observations."""
    stacked = showing(core, [step] if step.frames > 1 else [])
    space, function = composed([step], stacked.observation)
    return _showing(stacked, lambda _, obs: function(obs), space)


def _showing(
    core: Environment,
    seen: Callable[[ArrayTree, ArrayTree], ArrayTree],
    space: gymnasium.Space,
) -> Environment:
    """The core, with `seen(state, obs)`, an element of that space, as observation.

    An action mask is none of `obs`, and shown beside it.
    """

    def shown(state: ArrayTree, obs: ArrayTree) -> ArrayTree:
        return action_masks.beside(
            seen(state, action_masks.without(obs)), action_masks.carried(obs)
        )

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = core.reset(key)
        return state, shown(state, obs)

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = core.step(state, action, noise)
        obs = shown(state, timestep.next_obs)
        return state, timestep._replace(obs=obs, next_obs=obs)

    _, mask = action_masks.apart(core.observation)
    return core._replace(
        reset=reset, step=step, observation=action_masks.beside(space, mask)
    )


def _unbounded(leaf: jax.ShapeDtypeStruct) -> spaces.Box:
    """A Box of all that an array of that kind can hold."""
    if leaf.dtype == bool:
        return spaces.Box(0, 1, leaf.shape, leaf.dtype.type)
    if jnp.issubdtype(leaf.dtype, jnp.integer):
        limits = jnp.iinfo(leaf.dtype)
        return spaces.Box(limits.min, limits.max, leaf.shape, leaf.dtype.type)
    return spaces.Box(-np.inf, np.inf, leaf.shape, leaf.dtype.type)
