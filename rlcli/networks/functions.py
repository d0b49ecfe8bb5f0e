"""Functions: torso and head, made into a `Network` of the observation, or of a pair."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp

from rlcli import spaces
from rlcli.errors import RlcliError
from rlcli.networks.heads import Head
from rlcli.networks.inputs import Pair, flat
from rlcli.networks.torsos import Torso
from rlcli.types import Array, ArrayTree, Key, Network, Params

SHARED = "shared"


def own(
    group: str,
    torso: Torso,
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """A function with parameters of its own, under `group`.

    With `copies` there are so many of it, from different parameters; these and what
    they say have an axis for them in front: `[copies, T, B, ...]`.
    """
    prepare = torso.reads(space)
    made = _copied(lambda obs: head.read(torso, torso.features(prepare(obs))), copies)

    def init(key: Key) -> Params:
        return {group: made.init(key_for(group, key), example(space))}

    def outputs(params: Params, key: Key | None, obs: ArrayTree) -> ArrayTree:
        return made.apply(params[group], key, obs)

    return _network(init, outputs, space, copies)


def sharing(
    group: str,
    torso: Torso,
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """A head of its own, under `group`, on a torso with parameters that all share.

    Of a pair the observation alone goes through the shared torso; what comes of it is
    joined with the action and goes through another, of the function's own.
    """
    pair = space.spaces if isinstance(space, Pair) else (space,)
    prepare, beside = torso.reads(pair[0]), [flat(each) for each in pair[1:]]
    lower = hk.transform(lambda obs: torso.features(prepare(obs)))

    def above(features: Array, *action: Array) -> ArrayTree:
        for read, each in zip(beside, action, strict=True):
            joined = jnp.concatenate([features, read(each)], axis=-1)
            features = torso.features(joined)
        return head.read(torso, features)

    upper = _copied(above, copies)

    def split(inputs: ArrayTree) -> tuple[ArrayTree, ...]:
        return inputs if beside else (inputs,)

    def init(key: Key) -> Params:
        obs, *action = split(example(space))
        shared = lower.init(key_for(SHARED, key), obs)
        features = lower.apply(shared, None, obs)
        return {
            SHARED: shared,
            group: upper.init(key_for(group, key), features, *action),
        }

    def outputs(params: Params, key: Key | None, inputs: ArrayTree) -> ArrayTree:
        obs, *action = split(inputs)
        features = lower.apply(params[SHARED], None, obs)
        return upper.apply(params[group], key, features, *action)

    return _network(init, outputs, space, copies)


def forward_pass(
    group: str,
    function: Callable[..., Any],
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """The user's own forward pass: a Haiku function of a batch of observations.

    `function(obs[N, ...]) -> [N, *head.shape]`, or `function(obs, action)` where the
    function is one of both; what comes out is checked.
    """
    made = head.made
    if made is None:
        raise RlcliError(
            f"network function `{group}` has a head that a forward pass of one's own "
            "cannot be",
            "choose another head, or a torso such as `mlp`",
        )
    given = (lambda pair: function(*pair)) if isinstance(space, Pair) else function
    alone = hk.transform(given)
    all_of_them = _copied(given, copies)

    def init(key: Key) -> Params:
        obs = example(space)
        _, out = jax.eval_shape(_init_and_apply(alone), key, obs)
        shapes = _shapes(obs)
        rows = jax.tree.leaves(obs)[0].shape[0]
        expected = (rows, *head.shape)
        if getattr(out, "shape", None) != expected:
            raise RlcliError(
                f"network function `{group}` gives {_shapes(out)} where "
                f"{expected} is needed",
                f"observations are {shapes}, a batch of {rows}",
            )
        return {group: all_of_them.init(key_for(group, key), obs)}

    def outputs(params: Params, key: Key | None, obs: ArrayTree) -> ArrayTree:
        return made(all_of_them.apply(params[group], key, obs))

    return _network(init, outputs, space, copies)


def _init_and_apply(transformed: hk.Transformed) -> Callable:
    def both(key: Key, obs: ArrayTree) -> tuple[Any, Any]:
        params = transformed.init(key, obs)
        return params, transformed.apply(params, key, obs)

    return both


class _Copied(NamedTuple):
    """`init(key, *inputs)` and `apply(params, key, *inputs)`, as Haiku has them."""

    init: Callable
    apply: Callable


def _copied(function: Callable, copies: int | None) -> hk.Transformed | _Copied:
    """A Haiku function, or so many of it, with an axis for them in front."""
    one = hk.transform(function)
    if copies is None:
        return one

    def init(key: Key, *inputs: ArrayTree) -> Params:
        keys = jax.random.split(key, copies)
        return jax.vmap(lambda each: one.init(each, *inputs))(keys)

    def apply(params: Params, key: Key | None, *inputs: ArrayTree) -> ArrayTree:
        if key is None:
            return jax.vmap(lambda each: one.apply(each, None, *inputs))(params)
        keys = jax.random.split(key, copies)
        return jax.vmap(lambda each, own: one.apply(each, own, *inputs))(params, keys)

    return _Copied(init, apply)


def _network(
    init: Callable, outputs: Callable, space: gymnasium.Space, copies: int | None
) -> Network:
    """`outputs` takes a batch; a network takes `[T, B, ...]` and a carry."""
    ranks = [len(leaf.shape) for leaf in jax.tree.leaves(_element(space))]
    at = 0 if copies is None else 1  # the axis of the batch in what comes out

    def apply(
        params: Params, key: Key | None, obs: ArrayTree, carry: ArrayTree, first: Array
    ) -> tuple[ArrayTree, ArrayTree]:
        del first  # nothing to forget
        leaves, tree = jax.tree.flatten(obs)
        leading = leaves[0].shape[: leaves[0].ndim - ranks[0]]
        flattened = [
            leaf.reshape((-1, *leaf.shape[leaf.ndim - rank :]))
            for leaf, rank in zip(leaves, ranks, strict=True)
        ]
        found = outputs(params, key, jax.tree.unflatten(tree, flattened))
        return jax.tree.map(
            lambda leaf: leaf.reshape(leaf.shape[:at] + leading + leaf.shape[at + 1 :]),
            found,
        ), carry

    return Network(init, apply, lambda batch: ())


def example(space: gymnasium.Space) -> ArrayTree:
    """Two observations of a space: one would hide a mistaken batch axis."""
    return jax.tree.map(
        lambda leaf: jnp.zeros((2, *leaf.shape), leaf.dtype), _element(space)
    )


def _element(space: gymnasium.Space) -> ArrayTree:
    """The shapes of an element."""
    return jax.eval_shape(lambda: spaces.zeros(space))


def key_for(group: str, key: Key) -> Key:
    """The key of a group, by name: what stands beside it changes nothing."""
    return jax.random.fold_in(key, zlib.crc32(group.encode()))


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
