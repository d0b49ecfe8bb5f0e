"""Functions: a torso and a head as a `Network` of the observation or of a pair.

Batch normalization has running statistics. They are in the parameters, in a group of
their own beside that of the function (`networks.functions.statistics_group`), so
checkpoints, seeds, acting parameters and exports need no special case. `Network.apply`
normalizes by them and changes nothing. Only a loss calls `Network.learn`, which
normalizes by the batch and returns updated groups; `Losses.statistics` passes them to
the gradient step, which stores them if it is taken. They are no group of any optimizer.
An updater whose losses do so declares `learns_statistics`; `assembly.requirements`
refuses batch normalization for all others. Statistics of a batch are means over all
devices (`xla.data_axis`).
"""

import math
import zlib
from collections.abc import Callable, Mapping
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
from rlcli.types import Array, ArrayTree, Key, Network, Params, SharedTorso
from rlcli.xla.tree_paths import leaves_by_path

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

    def transform(features: Callable) -> _Ensemble:
        return _ensemble(lambda obs: head.read(torso, features(prepare(obs))), copies)

    transformed_fn = transform(torso.features)
    lower = hk.transform_with_state(lambda obs: torso.features(prepare(obs)))
    paths = torso_paths(group, lambda key: lower.init(key, example_batch(space))[0])

    def init(key: Key) -> Params:
        params, statistics = transformed_fn.init(
            group_key(group, key), example_batch(space)
        )
        state = {statistics_group(group): statistics} if statistics else {}
        return {group: params, **state}

    def outputs(params: Params, key: Key | None, obs: ArrayTree) -> ArrayTree:
        statistics = params.get(statistics_group(group), {})
        return transformed_fn.apply(params[group], statistics, key, obs)[0]

    if torso.learn_features is None:
        network = _batched_network(init, outputs, space, copies)
        return network._replace(torso=paths)
    learning_fn = transform(torso.learn_features)

    def learn(params: Params, key: Key | None, obs: ArrayTree) -> tuple:
        name = statistics_group(group)
        outputs, statistics = learning_fn.apply(params[group], params[name], key, obs)
        return outputs, {name: statistics}

    network = _batched_network(init, outputs, space, copies, learn)
    return network._replace(torso=paths)


def torso_paths(
    group: str, init: Callable[[Key], Params]
) -> Callable[[], dict[str, frozenset[str]]]:
    """Returns a `Network.torso`: the leaves of `init(key) -> params`, in `group`."""

    def paths() -> dict[str, frozenset[str]]:
        params = jax.eval_shape(init, jax.random.key(0))
        return {group: frozenset(leaves_by_path(params))}

    return paths


def statistics_group(group: str) -> str:
    """The group of the running statistics of a group of parameters."""
    return f"{group}.statistics"


def learn_outputs(network: Network, params: Params, *inputs: Any) -> tuple:
    """`network.learn`, or the outputs and no statistics of a network without state."""
    if network.learn is None:
        return network.apply(params, *inputs)[0], {}
    return network.learn(params, *inputs)


def shared_network(
    group: str,
    torso: Torso,
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """A separate head, under `group`, on a torso with shared parameters.

    For a pair (observation, action), only the observation is the input of the shared
    torso. `torso.join`, with separate parameters, adds the action to its features.
    """
    pair = space.spaces if isinstance(space, Pair) else (space,)
    prepare = torso.input_reader(pair[0])
    action_readers = [flat_reader(member) for member in pair[1:]]
    lower = hk.transform(lambda obs: torso.features(prepare(obs)))

    def read_head(features: Float[Array, "N F"], *action: ArrayTree) -> ArrayTree:
        for read, member_action in zip(action_readers, action, strict=True):
            features = torso.join(features, read(member_action))
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
            group: upper.init(group_key(group, key), features, *action)[0],
        }

    def outputs(params: Params, key: Key | None, inputs: ArrayTree) -> ArrayTree:
        obs, *action = split(inputs)
        features = lower.apply(params[SHARED], None, obs)
        return upper.apply(params[group], {}, key, features, *action)[0]

    def init_lower(key: Key) -> Params:
        return lower.init(key, split(example_batch(space))[0])

    network = _batched_network(init, outputs, space, copies)
    network = network._replace(torso=torso_paths(SHARED, init_lower))
    if action_readers or copies is not None:
        return network

    def shared_features(
        params: Params,
        key: Key | None,
        obs: ArrayTree,
        carry: ArrayTree,
        first: Bool[Array, "..."] | None,
    ) -> tuple[Float[Array, "T B F"], ArrayTree]:
        leading, rows = _flatten_rows(space, obs)
        features = lower.apply(params[SHARED], None, rows)
        return features.reshape((*leading, -1)), carry

    def read(
        params: Params, key: Key | None, features: Float[Array, "T B F"], obs: ArrayTree
    ) -> ArrayTree:
        del obs  # an action mask is applied by `mask_network`
        rows = features.reshape((-1, features.shape[-1]))
        outputs_flat, _ = upper.apply(params[group], {}, key, rows)
        return _unflatten_rows(outputs_flat, features.shape[:-1])

    return network._replace(shared=SharedTorso(shared_features, read))


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
                f"network function `{group}` returns shape {_leaf_shapes(out)}, "
                f"expected {expected_shape}",
                f"observations are {shapes}, a batch of {rows}",
            )
        return {group: transformed_fn.init(group_key(group, key), obs)[0]}

    def outputs(params: Params, key: Key | None, obs: ArrayTree) -> ArrayTree:
        return from_array(transformed_fn.apply(params[group], {}, key, obs)[0])

    return _batched_network(init, outputs, space, copies)


def _init_and_apply(transformed: hk.Transformed) -> Callable:
    def init_and_apply(key: Key, obs: ArrayTree) -> tuple[Any, Any]:
        params = transformed.init(key, obs)
        return params, transformed.apply(params, key, obs)

    return init_and_apply


class _Ensemble(NamedTuple):
    """As `hk.TransformedWithState`.

    `init(key, *inputs) -> params, statistics`, and
    `apply(params, statistics, key, *inputs) -> outputs, statistics`.
    """

    init: Callable
    apply: Callable


def _ensemble(function: Callable, copies: int | None) -> _Ensemble:
    """Transforms a Haiku function, or an ensemble of it with a leading axis."""
    single = hk.transform_with_state(function)
    if copies is None:
        return _Ensemble(single.init, single.apply)

    def init(key: Key, *inputs: ArrayTree) -> tuple[Params, Params]:
        keys = jax.random.split(key, copies)
        # Not `vmap`: a batched call of LAPACK can deadlock (see `loop.seeds`).
        return jax.lax.map(lambda member_key: single.init(member_key, *inputs), keys)

    def apply(
        params: Params, statistics: Params, key: Key | None, *inputs: ArrayTree
    ) -> tuple[ArrayTree, Params]:
        if key is None:
            return jax.vmap(lambda *member: single.apply(*member, None, *inputs))(
                params, statistics
            )
        # Of as many members as there are parameters: targets may use a subset.
        keys = jax.random.split(key, jax.tree.leaves(params)[0].shape[0])
        return jax.vmap(lambda *member: single.apply(*member, *inputs))(
            params, statistics, keys
        )

    return _Ensemble(init, apply)


def _batched_network(
    init: Callable,
    outputs: Callable,
    space: gymnasium.Space,
    copies: int | None,
    learn: Callable | None = None,
) -> Network:
    """Makes a network of `[T, B, ...]` from functions of `[N, ...]`.

    `outputs` are those of `Network.apply`, `learn` the result of `Network.learn`.
    """
    batch_axis = 0 if copies is None else 1  # of the outputs

    def apply(
        params: Params,
        key: Key | None,
        obs: ArrayTree,
        carry: ArrayTree,
        first: Bool[Array, "..."] | None,
    ) -> tuple[ArrayTree, ArrayTree]:
        del first  # there is no recurrent state to reset
        leading, rows = _flatten_rows(space, obs)
        outputs_flat = outputs(params, key, rows)
        return _unflatten_rows(outputs_flat, leading, batch_axis), carry

    def apply_to_learn(
        params: Params,
        key: Key | None,
        obs: ArrayTree,
        carry: ArrayTree,
        first: Bool[Array, "..."] | None,
    ) -> tuple[ArrayTree, Params]:
        assert learn is not None
        leading, rows = _flatten_rows(space, obs)
        outputs_flat, statistics = learn(params, key, rows)
        return _unflatten_rows(outputs_flat, leading, batch_axis), statistics

    return Network(
        init, apply, lambda batch: (), None if learn is None else apply_to_learn
    )


def _flatten_rows(
    space: gymnasium.Space, obs: ArrayTree
) -> tuple[tuple[int, ...], ArrayTree]:
    """The leading axes `(T, B)` of elements of a space, and the elements `[N, ...]`."""
    leaves, tree = jax.tree.flatten(obs)
    ranks = [len(leaf.shape) for leaf in jax.tree.leaves(_element_shapes(space))]
    leading = leaves[0].shape[: leaves[0].ndim - ranks[0]]
    flat_leaves = [
        leaf.reshape((math.prod(leading), *leaf.shape[leaf.ndim - rank :]))
        for leaf, rank in zip(leaves, ranks, strict=True)
    ]
    return leading, jax.tree.unflatten(tree, flat_leaves)


def _unflatten_rows(
    outputs_flat: ArrayTree, leading: tuple[int, ...], batch_axis: int = 0
) -> ArrayTree:
    """Reshapes the axis `N` of outputs to the leading axes `(T, B)`."""
    return jax.tree.map(
        lambda leaf: leaf.reshape(
            leaf.shape[:batch_axis] + leading + leaf.shape[batch_axis + 1 :]
        ),
        outputs_flat,
    )


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


def apply_jointly(
    networks: Mapping[str, Network],
    params: Params,
    key: Key | None,
    inputs: ArrayTree,
    carries: Mapping[str, ArrayTree],
    first: Bool[Array, "T B"] | None,
) -> tuple[dict[str, ArrayTree], dict[str, ArrayTree]]:
    """Outputs and carries of every network, by name, as of `Network.apply`.

    Networks that share a memory have equal carries: they read the same inputs. The
    features of a shared torso are computed once. XLA would merge the forward passes of
    separate calls, but not their backward passes: each would go through the torso,
    which made a gradient step of PPO on MinAtar take 1.5 times as long.
    """
    shared = None
    outputs, new_carries = {}, {}
    for name, network in networks.items():
        if network.shared is None:
            outputs[name], new_carries[name] = network.apply(
                params, key, inputs, carries[name], first
            )
            continue
        if shared is None:
            shared = network.shared.features(params, key, inputs, carries[name], first)
        features, new_carries[name] = shared
        outputs[name] = network.shared.read(params, key, features, inputs)
    return outputs, new_carries
