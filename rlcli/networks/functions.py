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
from rlcli.networks.inputs import Pair, flat_reader
from rlcli.networks.torsos import Torso
from rlcli.types import Array, ArrayTree, Key, Network, Params

SHARED = "shared"


def separate_network(
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
    prepare = torso.input_reader(space)
    transformed_fn = _ensemble(
        lambda obs: head.read(torso, torso.features(prepare(obs))), copies
    )

    def init(key: Key) -> Params:
        return {group: transformed_fn.init(group_key(group, key), example_batch(space))}

    def outputs(params: Params, key: Key | None, obs: ArrayTree) -> ArrayTree:
        return transformed_fn.apply(params[group], key, obs)

    return _batched_network(init, outputs, space, copies)


def shared_network(
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
    prepare, action_readers = (
        torso.input_reader(pair[0]),
        [flat_reader(member) for member in pair[1:]],
    )
    lower = hk.transform(lambda obs: torso.features(prepare(obs)))

    def read_head(features: Array, *action: Array) -> ArrayTree:
        for read, member_action in zip(action_readers, action, strict=True):
            inputs = jnp.concatenate([features, read(member_action)], axis=-1)
            features = torso.features(inputs)
        return head.read(torso, features)

    upper = _ensemble(read_head, copies)

    def split(inputs: ArrayTree) -> tuple[ArrayTree, ...]:
        return inputs if action_readers else (inputs,)

    def init(key: Key) -> Params:
        obs, *action = split(example_batch(space))
        shared_params = lower.init(group_key(SHARED, key), obs)
        features = lower.apply(shared_params, None, obs)
        return {
            SHARED: shared_params,
            group: upper.init(group_key(group, key), features, *action),
        }

    def outputs(params: Params, key: Key | None, inputs: ArrayTree) -> ArrayTree:
        obs, *action = split(inputs)
        features = lower.apply(params[SHARED], None, obs)
        return upper.apply(params[group], key, features, *action)

    return _batched_network(init, outputs, space, copies)


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
    from_array = head.from_array
    if from_array is None:
        raise RlcliError(
            f"network function `{group}` has a head that a forward pass of one's own "
            "cannot be",
            "choose another head, or a torso such as `mlp`",
        )
    paired = (lambda pair: function(*pair)) if isinstance(space, Pair) else function
    single = hk.transform(paired)
    all_of_them = _ensemble(paired, copies)

    def init(key: Key) -> Params:
        obs = example_batch(space)
        _, out = jax.eval_shape(_init_and_apply(single), key, obs)
        shapes = _leaf_shapes(obs)
        rows = jax.tree.leaves(obs)[0].shape[0]
        expected_shape = (rows, *head.shape)
        if getattr(out, "shape", None) != expected_shape:
            raise RlcliError(
                f"network function `{group}` gives {_leaf_shapes(out)} where "
                f"{expected_shape} is needed",
                f"observations are {shapes}, a batch of {rows}",
            )
        return {group: all_of_them.init(group_key(group, key), obs)}

    def outputs(params: Params, key: Key | None, obs: ArrayTree) -> ArrayTree:
        return from_array(all_of_them.apply(params[group], key, obs))

    return _batched_network(init, outputs, space, copies)


def _init_and_apply(transformed: hk.Transformed) -> Callable:
    def init_and_apply(key: Key, obs: ArrayTree) -> tuple[Any, Any]:
        params = transformed.init(key, obs)
        return params, transformed.apply(params, key, obs)

    return init_and_apply


class _Ensemble(NamedTuple):
    """`init(key, *inputs)` and `apply(params, key, *inputs)`, as Haiku has them."""

    init: Callable
    apply: Callable


def _ensemble(function: Callable, copies: int | None) -> hk.Transformed | _Ensemble:
    """A Haiku function, or so many of it, with an axis for them in front."""
    single = hk.transform(function)
    if copies is None:
        return single

    def init(key: Key, *inputs: ArrayTree) -> Params:
        keys = jax.random.split(key, copies)
        return jax.vmap(lambda member_key: single.init(member_key, *inputs))(keys)

    def apply(params: Params, key: Key | None, *inputs: ArrayTree) -> ArrayTree:
        if key is None:
            return jax.vmap(
                lambda member_params: single.apply(member_params, None, *inputs)
            )(params)
        keys = jax.random.split(key, copies)
        return jax.vmap(
            lambda member_params, member_key: single.apply(
                member_params, member_key, *inputs
            )
        )(params, keys)

    return _Ensemble(init, apply)


def _batched_network(
    init: Callable, outputs: Callable, space: gymnasium.Space, copies: int | None
) -> Network:
    """`outputs` takes a batch; a network takes `[T, B, ...]` and a carry."""
    ranks = [len(leaf.shape) for leaf in jax.tree.leaves(_element_shapes(space))]
    batch_axis = 0 if copies is None else 1  # the axis of the batch in what comes out

    def apply(
        params: Params, key: Key | None, obs: ArrayTree, carry: ArrayTree, first: Array
    ) -> tuple[ArrayTree, ArrayTree]:
        del first  # nothing to forget
        leaves, tree = jax.tree.flatten(obs)
        leading = leaves[0].shape[: leaves[0].ndim - ranks[0]]
        flat_leaves = [
            leaf.reshape((-1, *leaf.shape[leaf.ndim - rank :]))
            for leaf, rank in zip(leaves, ranks, strict=True)
        ]
        outputs_flat = outputs(params, key, jax.tree.unflatten(tree, flat_leaves))
        return jax.tree.map(
            lambda leaf: leaf.reshape(
                leaf.shape[:batch_axis] + leading + leaf.shape[batch_axis + 1 :]
            ),
            outputs_flat,
        ), carry

    return Network(init, apply, lambda batch: ())


def example_batch(space: gymnasium.Space) -> ArrayTree:
    """Two observations of a space: one would hide a mistaken batch axis."""
    return jax.tree.map(
        lambda leaf: jnp.zeros((2, *leaf.shape), leaf.dtype), _element_shapes(space)
    )


def _element_shapes(space: gymnasium.Space) -> ArrayTree:
    """The shapes of an element."""
    return jax.eval_shape(lambda: spaces.zeros(space))


def group_key(group: str, key: Key) -> Key:
    """The key of a group, by name: what stands beside it changes nothing."""
    return jax.random.fold_in(key, zlib.crc32(group.encode()))


def _leaf_shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
