"""Functions: torso and head, made into a `Network` of the observation."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.errors import RlcliError
from rlcli.networks.heads import Head
from rlcli.networks.torsos import Torso
from rlcli.types import Array, ArrayTree, Key, Network, Params

SHARED = "shared"


def flat(space: gymnasium.Space) -> Callable[[Array], Array]:
    """Observations `[N, ...]` as vectors `[N, size]` of float32: what torsos take."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda obs: jax.nn.one_hot(obs - int(space.start), int(space.n))
    if isinstance(space, gymnasium.spaces.Box):
        size = int(np.prod(space.shape, dtype=int))
        return lambda obs: obs.reshape((-1, size)).astype(jnp.float32)
    raise RlcliError(
        f"a network cannot read observations of {space}",
        "it reads Discrete and Box spaces",
    )


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
        expected = (obs.shape[0], *head.shape)
        if getattr(out, "shape", None) != expected:
            raise RlcliError(
                f"network function `{group}` gives {_shapes(out)} where "
                f"{expected} is needed",
                f"observations are {obs.shape}, a batch of {obs.shape[0]}",
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
    rank = len(space.shape or ())

    def apply(
        params: Params, key: Key | None, obs: Array, carry: ArrayTree, first: Array
    ) -> tuple[ArrayTree, ArrayTree]:
        del first  # nothing to forget
        leading = obs.shape[: obs.ndim - rank]
        flattened = obs.reshape((-1, *obs.shape[obs.ndim - rank :]))
        found = outputs(params, key, flattened)
        return found.reshape(leading + found.shape[1:]), carry

    return Network(init, apply, lambda batch: ())


def example(space: gymnasium.Space) -> Array:
    """Two observations of a space: one would hide a mistaken batch axis."""
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    return jnp.zeros((2, *(space.shape or ())), dtype)


def key_for(group: str, key: Key) -> Key:
    """The key of a group, by name: what stands beside it changes nothing."""
    return jax.random.fold_in(key, zlib.crc32(group.encode()))


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
