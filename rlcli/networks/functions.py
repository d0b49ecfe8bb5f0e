"""Functions: torso and head, made into a `Network` of the observation."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as kinds

from rlcli import spaces
from rlcli.errors import RlcliError
from rlcli.networks.heads import Head
from rlcli.networks.torsos import Torso
from rlcli.types import Array, ArrayTree, Key, Network, Params

SHARED = "shared"


def flat(space: gymnasium.Space) -> Callable[[ArrayTree], Array]:
    """Observations `[N, ...]` as vectors `[N, size]` of float32: what torsos take.

    Each choice is one-hot; the members of a Tuple or a Dict stand side by side, in the
    order of `gymnasium.spaces.flatten`.
    """
    match space:
        case kinds.Discrete():
            return lambda obs: jax.nn.one_hot(obs - int(space.start), int(space.n))
        case kinds.MultiDiscrete():
            return functools.partial(_one_hots, space.nvec.ravel(), space.start.ravel())
        case kinds.Box() | kinds.MultiBinary():
            size = int(np.prod(space.shape, dtype=int))
            return lambda obs: obs.reshape((-1, size)).astype(jnp.float32)
        case kinds.Tuple() if len(space.spaces):
            return _side_by_side(dict(enumerate(space.spaces)))
        case kinds.Dict() if len(space.spaces):
            return _side_by_side(space.spaces)
    raise RlcliError(
        f"a network cannot read observations of {space}",
        "it reads Discrete, MultiDiscrete, MultiBinary, Box, and Tuple or Dict of them",
    )


def _one_hots(counts: np.ndarray, start: np.ndarray, obs: Array) -> Array:
    obs = obs.reshape((-1, counts.size)) - start
    columns = [jax.nn.one_hot(obs[:, i], int(n)) for i, n in enumerate(counts)]
    return jnp.concatenate(columns, axis=-1)


def _side_by_side(members: Mapping[Any, gymnasium.Space]) -> Callable:
    each = {name: flat(member) for name, member in members.items()}

    def joined(obs: ArrayTree) -> Array:
        return jnp.concatenate([each[name](obs[name]) for name in each], axis=-1)

    return joined


def own(group: str, torso: Torso, head: Head, space: gymnasium.Space) -> Network:
    """A function with parameters of its own, under `group`."""
    prepare = flat(space)

    def forward(obs: Array) -> Array:
        return head.read(torso, torso.features(prepare(obs)))

    transformed = hk.transform(forward)

    def init(key: Key) -> Params:
        return {group: transformed.init(key_for(group, key), example(space))}

    def outputs(params: Params, key: Key | None, obs: Array) -> Array:
        return transformed.apply(params[group], key, obs)

    return _network(init, outputs, space)


def sharing(group: str, torso: Torso, head: Head, space: gymnasium.Space) -> Network:
    """A head of its own, under `group`, on a torso with parameters that all share."""
    prepare = flat(space)
    lower = hk.transform(lambda obs: torso.features(prepare(obs)))
    upper = hk.transform(lambda features: head.read(torso, features))

    def init(key: Key) -> Params:
        obs = example(space)
        shared = lower.init(key_for(SHARED, key), obs)
        features = lower.apply(shared, None, obs)
        return {SHARED: shared, group: upper.init(key_for(group, key), features)}

    def outputs(params: Params, key: Key | None, obs: Array) -> Array:
        return upper.apply(params[group], key, lower.apply(params[SHARED], key, obs))

    return _network(init, outputs, space)


def forward_pass(
    group: str, function: Callable[[Array], Any], head: Head, space: gymnasium.Space
) -> Network:
    """The user's own forward pass: a Haiku function of a batch of observations.

    `function(obs[N, ...]) -> [N, *head.shape]`; what comes out is checked.
    """
    transformed = hk.transform(function)

    def init(key: Key) -> Params:
        obs = example(space)
        _, out = jax.eval_shape(_init_and_apply(transformed), key, obs)
        expected = (2, *head.shape)
        if getattr(out, "shape", None) != expected:
            raise RlcliError(
                f"network function `{group}` gives {_shapes(out)} where "
                f"{expected} is needed",
                f"observations are {_shapes(obs)}, a batch of 2",
            )
        return {group: transformed.init(key_for(group, key), obs)}

    def outputs(params: Params, key: Key | None, obs: Array) -> Array:
        return transformed.apply(params[group], key, obs)

    return _network(init, outputs, space)


def _init_and_apply(transformed: hk.Transformed) -> Callable:
    def both(key: Key, obs: Array) -> tuple[Any, Any]:
        params = transformed.init(key, obs)
        return params, transformed.apply(params, key, obs)

    return both


def _network(init: Callable, outputs: Callable, space: gymnasium.Space) -> Network:
    """`outputs` takes a batch; a network takes `[T, B, ...]` and a carry."""
    rank = jax.tree.leaves(example(space))[0].ndim - 1

    def apply(
        params: Params, key: Key | None, obs: ArrayTree, carry: ArrayTree, first: Array
    ) -> tuple[ArrayTree, ArrayTree]:
        del first  # nothing to forget
        leaf = jax.tree.leaves(obs)[0]
        axes = leaf.ndim - rank
        leading = leaf.shape[:axes]
        flattened = jax.tree.map(
            lambda leaf: leaf.reshape((-1, *leaf.shape[axes:])), obs
        )
        found = outputs(params, key, flattened)
        return found.reshape(leading + found.shape[1:]), carry

    return Network(init, apply, lambda batch: ())


def example(space: gymnasium.Space) -> ArrayTree:
    """Two observations of a space: one would hide a mistaken batch axis."""
    return jax.tree.map(
        lambda leaf: jnp.zeros((2, *leaf.shape), leaf.dtype), spaces.zeros(space)
    )


def key_for(group: str, key: Key) -> Key:
    """The key of a group, by name: what stands beside it changes nothing."""
    return jax.random.fold_in(key, zlib.crc32(group.encode()))


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
