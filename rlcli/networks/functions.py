"""Functions: a torso and a head as a `Network` of the observation or of a pair."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

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
    """A function with separate parameters, under `group`.

    `copies` is the size of an ensemble with independent initial parameters. Parameters
    and outputs then have a leading axis: `[copies, T, B, ...]`.
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
    """A separate head, under `group`, on a torso with shared parameters.

    For a pair (observation, action), only the observation is the input of the shared
    torso. Its features are concatenated with the action, and a second torso, with
    separate parameters, reads both.
    """
    pair = space.spaces if isinstance(space, Pair) else (space,)
    prepare = torso.input_reader(pair[0])
    action_readers = [flat_reader(member) for member in pair[1:]]
    lower = hk.transform(lambda obs: torso.features(prepare(obs)))

    def read_head(features: Float[Array, "N F"], *action: ArrayTree) -> ArrayTree:
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
    """A user-defined forward pass: a Haiku function of a batch of observations.

    `function(obs[N, ...]) -> [N, *head.shape]`, or `function(obs, action)` for a
    function of both. The shape of the outputs is checked.
    """
    from_array = head.from_array
    if from_array is None:
        raise RlcliError(
            f"network function `{group}` has a head that does not support a "
            "user-defined forward pass",
            "choose another head, or a torso such as `mlp`",
        )
    paired = (lambda pair: function(*pair)) if isinstance(space, Pair) else function
    single = hk.transform(paired)
    transformed_fn = _ensemble(paired, copies)

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
        return {group: transformed_fn.init(group_key(group, key), obs)}

    def outputs(params: Params, key: Key | None, obs: ArrayTree) -> ArrayTree:
        return from_array(transformed_fn.apply(params[group], key, obs))

    return _batched_network(init, outputs, space, copies)


def _init_and_apply(transformed: hk.Transformed) -> Callable:
    def init_and_apply(key: Key, obs: ArrayTree) -> tuple[Any, Any]:
        params = transformed.init(key, obs)
        return params, transformed.apply(params, key, obs)

    return init_and_apply


class _Ensemble(NamedTuple):
    """`init(key, *inputs)` and `apply(params, key, *inputs)`, as in Haiku."""

    init: Callable
    apply: Callable


def _ensemble(function: Callable, copies: int | None) -> hk.Transformed | _Ensemble:
    """Transforms a Haiku function, or an ensemble of it with a leading axis."""
    single = hk.transform(function)
    if copies is None:
        return single

    def init(key: Key, *inputs: ArrayTree) -> Params:
        keys = jax.random.split(key, copies)
        # Not `vmap`: a batched call of LAPACK can deadlock (see `loop.seeds`).
        return jax.lax.map(lambda member_key: single.init(member_key, *inputs), keys)

    def apply(params: Params, key: Key | None, *inputs: ArrayTree) -> ArrayTree:
        if key is None:
            return jax.vmap(
                lambda member_params: single.apply(member_params, None, *inputs)
            )(params)
        # Of as many members as there are parameters: targets may use a subset.
        keys = jax.random.split(key, jax.tree.leaves(params)[0].shape[0])
        return jax.vmap(
            lambda member_params, member_key: single.apply(
                member_params, member_key, *inputs
            )
        )(params, keys)

    return _Ensemble(init, apply)


def _batched_network(
    init: Callable, outputs: Callable, space: gymnasium.Space, copies: int | None
) -> Network:
    """Makes a network of `[T, B, ...]` from a function `outputs` of `[N, ...]`."""
    ranks = [len(leaf.shape) for leaf in jax.tree.leaves(_element_shapes(space))]
    batch_axis = 0 if copies is None else 1  # of the outputs

    def apply(
        params: Params,
        key: Key | None,
        obs: ArrayTree,
        carry: ArrayTree,
        first: Bool[Array, "..."] | None,
    ) -> tuple[ArrayTree, ArrayTree]:
        del first  # there is no recurrent state to reset
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
    """Two zero observations of a space: a batch of 1 would hide a wrong batch axis."""
    return jax.tree.map(
        lambda leaf: jnp.zeros((2, *leaf.shape), leaf.dtype), _element_shapes(space)
    )


def _element_shapes(space: gymnasium.Space) -> ArrayTree:
    """The shapes of an element of a space."""
    return jax.eval_shape(lambda: spaces.zeros(space))


def group_key(group: str, key: Key) -> Key:
    """The key of a group, derived from its name: independent of the other groups."""
    return jax.random.fold_in(key, zlib.crc32(group.encode()))


def _leaf_shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
