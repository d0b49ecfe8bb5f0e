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
from typing import Any

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from rlcli import spaces
from rlcli.errors import RlcliError
from rlcli.networks.heads import Head
from rlcli.networks.inputs import Pair, flat_reader
from rlcli.networks.memory import RecurrentCore, merge_time
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
    core: RecurrentCore | None = None,
) -> Network:
    """A function with separate parameters, under `group`.

    `copies` is the size of an ensemble with independent initial parameters. Parameters
    and outputs then have a leading axis: `[copies, T, B, ...]`. A memory `core` is
    between torso and head.
    """
    _check_memory(group, core, copies)

    def transform(features: Callable) -> hk.TransformedWithState:
        lower = _lower(features, torso, space, core)

        def forward(*inputs: ArrayTree) -> tuple[ArrayTree, ArrayTree]:
            lower_outputs, carries = lower(*inputs)
            return head.read(torso, lower_outputs), carries

        return _ensemble(forward, copies)

    transformed_fn = transform(torso.features)
    lower = hk.transform_with_state(_lower(torso.features, torso, space, core))

    def init(key: Key) -> Params:
        params, statistics = transformed_fn.init(
            group_key(group, key), *_example_inputs(space, core)
        )
        state = {statistics_group(group): statistics} if statistics else {}
        return {group: params, **state}

    def apply(params: Params, key: Key | None, *inputs: ArrayTree) -> tuple:
        statistics = params.get(statistics_group(group), {})
        return transformed_fn.apply(params[group], statistics, key, *inputs)[0]

    def init_lower(key: Key) -> Params:
        return lower.init(key, *_example_inputs(space, core))[0]

    network = _batched_network(init, apply, space, copies, core)
    network = network._replace(torso=torso_paths(group, init_lower))
    if torso.learn_features is None:
        return network
    learning_fn = transform(torso.learn_features)

    def learn(params: Params, key: Key | None, *inputs: ArrayTree) -> tuple:
        name = statistics_group(group)
        (outputs, _), statistics = learning_fn.apply(
            params[group], params[name], key, *inputs
        )
        return outputs, {name: statistics}

    return network._replace(learn=_on_rows(learn, space, copies))


def _lower(
    features: Callable, torso: Torso, space: gymnasium.Space, core: RecurrentCore | None
) -> Callable:
    """Torso and memory: `(rows[N, ...], carry, first) -> features[N, F], carries`.

    With a memory, the rows are those of T · B steps, and `first` is `[T, B]`.
    """
    prepare = torso.input_reader(space)

    def lower(
        rows: ArrayTree, carry: ArrayTree, first: Any
    ) -> tuple[Float[Array, "N F"], ArrayTree]:
        vectors = features(prepare(rows))
        if core is None:
            return vectors, carry
        steps = vectors.reshape((*first.shape, vectors.shape[-1]))
        outputs, carries = core.unroll(steps, carry, first)
        return merge_time(outputs), carries

    return lower


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
    core: RecurrentCore | None = None,
) -> Network:
    """A separate head, under `group`, on a torso and a memory with shared parameters.

    For a pair (observation, action), only the observation is the input of the shared
    torso. `torso.join`, with separate parameters, adds the action to its features.
    """
    _check_memory(group, core, copies, action=isinstance(space, Pair))
    pair = space.spaces if isinstance(space, Pair) else (space,)
    action_readers = [flat_reader(member) for member in pair[1:]]
    lower = hk.transform(_lower(torso.features, torso, pair[0], core))

    def read_head(features: Float[Array, "N F"], *action: ArrayTree) -> ArrayTree:
        for read, member_action in zip(action_readers, action, strict=True):
            features = torso.join(features, read(member_action))
        return head.read(torso, features)

    upper = _ensemble(read_head, copies)

    def split(inputs: ArrayTree) -> tuple[ArrayTree, ...]:
        return inputs if action_readers else (inputs,)

    def init_lower(key: Key) -> Params:
        return lower.init(key, *_example_inputs(pair[0], core))

    def init(key: Key) -> Params:
        inputs, *memory_inputs = _example_inputs(space, core)
        obs, *action = split(inputs)
        shared_params = init_lower(group_key(SHARED, key))
        features, _ = lower.apply(shared_params, None, obs, *memory_inputs)
        return {
            SHARED: shared_params,
            group: upper.init(group_key(group, key), features, *action)[0],
        }

    def apply(
        params: Params, key: Key | None, inputs: ArrayTree, *memory_inputs: ArrayTree
    ) -> tuple[ArrayTree, ArrayTree]:
        obs, *action = split(inputs)
        features, carries = lower.apply(params[SHARED], None, obs, *memory_inputs)
        outputs, _ = upper.apply(params[group], {}, key, features, *action)
        return outputs, carries

    network = _batched_network(init, apply, space, copies, core)
    network = network._replace(torso=torso_paths(SHARED, init_lower))
    if action_readers or copies is not None:
        return network

    def apply_lower(params: Params, key: Key | None, *inputs: ArrayTree) -> tuple:
        return lower.apply(params[SHARED], None, *inputs)

    def read(
        params: Params, key: Key | None, features: Float[Array, "T B F"], obs: ArrayTree
    ) -> ArrayTree:
        del obs  # an action mask is applied by `mask_network`
        rows = features.reshape((-1, features.shape[-1]))
        outputs_flat, _ = upper.apply(params[group], {}, key, rows)
        return _unflatten_rows(outputs_flat, features.shape[:-1])

    shared_features = _on_rows(apply_lower, space, None, core)
    return network._replace(shared=SharedTorso(shared_features, read))


def _check_memory(
    group: str, core: RecurrentCore | None, copies: int | None, action: bool = False
) -> None:
    """Refuses memories of ensembles, and shared ones of functions of an `action`."""
    if core is None:
        return
    if copies is not None:
        raise RlcliError(
            f"network function `{group}` cannot combine a memory with an ensemble of "
            f"{copies} critics",
            "remove `memory` or `critics`",
        )
    if action:
        raise RlcliError(
            f"network function `{group}` takes an action, but the shared memory does "
            "not",
            "give it a separate network, or remove `memory`",
        )


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
        obs = _example_batch(space)
        out = jax.eval_shape(
            single.apply, jax.eval_shape(single.init, key, obs), key, obs
        )
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

    def apply(params, key, obs, carry, first):
        outputs, _ = transformed_fn.apply(params[group], {}, key, obs)
        return from_array(outputs), carry

    return _batched_network(init, apply, space, copies)


def _ensemble(function: Callable, copies: int | None) -> hk.TransformedWithState:
    """Transforms a Haiku function, or an ensemble of it with a leading axis."""
    single = hk.transform_with_state(function)
    if copies is None:
        return single

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

    return hk.TransformedWithState(init, apply)


def _batched_network(
    init: Callable,
    apply: Callable,
    space: gymnasium.Space,
    copies: int | None,
    core: RecurrentCore | None = None,
) -> Network:
    """Makes a network of `[T, B, ...]` from an `apply` of rows, see `_on_rows`."""
    initial = (lambda batch: ()) if core is None else core.initial
    return Network(init, _on_rows(apply, space, copies, core), initial)


def _on_rows(
    function: Callable,
    space: gymnasium.Space,
    copies: int | None,
    core: RecurrentCore | None = None,
) -> Callable:
    """`apply` or `learn` of a network, from the same function of rows `[N, ...]`."""
    batch_axis = 0 if copies is None else 1  # of the outputs

    def function_of_steps(params, key, obs, carry, first):
        if core is not None and not jax.tree.leaves(carry):
            raise RlcliError(
                "the network has a memory, but the updater does not support memories",
                "remove `memory`, or choose an updater that supports it",
            )
        leading, rows = _flatten_rows(space, obs)
        outputs_flat, rest = function(params, key, rows, carry, first)
        return _unflatten_rows(outputs_flat, leading, batch_axis), rest

    return function_of_steps


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


def _example_inputs(
    space: gymnasium.Space, core: RecurrentCore | None
) -> tuple[ArrayTree, ArrayTree, Array]:
    """One step of an example batch: rows, carry and `first`."""
    rows = _example_batch(space)
    batch = jax.tree.leaves(rows)[0].shape[0]
    carry = () if core is None else core.initial(batch)
    return rows, carry, jnp.zeros((1, batch), bool)


def _example_batch(space: gymnasium.Space) -> ArrayTree:
    """Two zero observations of a space: a batch of 1 would hide a wrong batch axis."""
    return spaces.zeros(space, (2,))


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
