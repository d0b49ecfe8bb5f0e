"""Memories: what a network carries from step to step, between torso and head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.networks.functions import SHARED, example_batch, group_key
from rlcli.networks.heads import Head
from rlcli.networks.inputs import Pair
from rlcli.networks.torsos import Torso
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Key, Network, Params


class RecurrentCore(NamedTuple):
    """A carry, and how steps change it.

    `unroll(features[T, B, F], carry[B, ...], first[T, B]) -> outputs[T, B, size],
    carries[T, B, ...]` is a Haiku function: it forgets where `first`, before the step,
    and gives the carry after each. `initial(batch)` is where it begins.
    """

    initial: Callable[[int], ArrayTree]
    unroll: Callable[[Array, ArrayTree, Array], tuple[Array, ArrayTree]]


@register("memory")
def gru(*, size: Count = 64) -> RecurrentCore:
    """A gated recurrent unit (Cho et al., 2014, https://arxiv.org/abs/1406.1078).

        z = σ(W_z x + U_z h)        r = σ(W_r x + U_r h)
        h′ = (1 − z) h + z tanh(W_a x + U_a (r h))

    each with a bias. The carry is h `[B, size]`, zero at first, and h′ is read out.
    """

    def step(weights: Array, carry: Array, inputs: Array) -> Array:
        gates, candidate = inputs[:, : 2 * size], inputs[:, 2 * size :]
        activations = jax.nn.sigmoid(gates + carry @ weights[:, : 2 * size])
        update, reset = jnp.split(activations, 2, axis=-1)
        new = jnp.tanh(candidate + (reset * carry) @ weights[:, 2 * size :])
        return (1 - update) * carry + update * new

    def initial(batch: int) -> Array:
        return jnp.zeros((batch, size), jnp.float32)

    return RecurrentCore(
        initial, _make_unroll("gru", 3, size, step, initial, lambda h: h)
    )


@register("memory")
def lstm(*, size: Count = 64) -> RecurrentCore:
    """Long short-term memory (Hochreiter & Schmidhuber, 1997), with a forget gate.

        i, f, o = σ(W x + U h)        g = tanh(W_g x + U_g h)
        c′ = f c + i g                h′ = o tanh(c′)

    each with a bias, that of f one higher, so that little is forgotten at first (Gers
    et al., 2000, https://doi.org/10.1162/089976600300015015). The carry is (h, c),
    `[B, size]` each, zero at first, and h′ is read out.
    """

    def step(weights: Array, carry: tuple, inputs: Array) -> tuple[Array, Array]:
        hidden, cell = carry
        gates = jnp.split(inputs + hidden @ weights, 4, axis=-1)
        entering, forgetting, leaving = map(
            jax.nn.sigmoid, (gates[0], gates[1] + 1, gates[2])
        )
        cell = forgetting * cell + entering * jnp.tanh(gates[3])
        return leaving * jnp.tanh(cell), cell

    def initial(batch: int) -> tuple[Array, Array]:
        nothing = jnp.zeros((batch, size), jnp.float32)
        return nothing, nothing

    return RecurrentCore(
        initial, _make_unroll("lstm", 4, size, step, initial, lambda carry: carry[0])
    )


def _make_unroll(
    name: str,
    gates: int,
    size: int,
    step: Callable,
    initial: Callable[[int], ArrayTree],
    read: Callable[[ArrayTree], Array],
) -> Callable[[Array, ArrayTree, Array], tuple[Array, ArrayTree]]:
    """`step(weights[size, gates · size], carry, inputs[B, gates · size]) -> carry`."""

    def unroll(
        features: Array, carry: ArrayTree, first: Array
    ) -> tuple[Array, ArrayTree]:
        # What depends on no carry is computed for all steps at once.
        inputs = hk.Linear(gates * size, name=f"{name}_inputs")(features)
        blocks = [
            hk.get_parameter(
                f"{name}_recurrent_{gate}",
                (size, size),
                init=hk.initializers.Orthogonal(),
            )
            for gate in range(gates)
        ]
        weights = jnp.concatenate(blocks, axis=-1)
        fresh = initial(first.shape[1])

        def scan_step(carry: ArrayTree, step_inputs: tuple[Array, Array]) -> tuple:
            inputs, first = step_inputs
            carry = jax.tree.map(
                lambda new, old: jnp.where(first[:, None], new, old), fresh, carry
            )
            carry = step(weights, carry, inputs)
            return carry, carry

        _, carries = jax.lax.scan(scan_step, carry, (inputs, first))
        return read(carries), carries

    return unroll


def separate_recurrent_network(
    group: str,
    torso: Torso,
    core: RecurrentCore,
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """A function with torso, memory and head of its own, under `group`."""
    _check_memory(group, False, space, copies)
    recurrent_features = _recurrent_features(torso, core, space)

    def forward(*inputs: ArrayTree) -> tuple[Array, ArrayTree]:
        features, carries = recurrent_features(*inputs)
        return head.read(torso, features), carries

    transformed_fn = hk.transform(forward)

    def init(key: Key) -> Params:
        return {
            group: transformed_fn.init(
                group_key(group, key), *_example_step(space, core)
            )
        }

    def outputs(params: Params, key: Key | None, *inputs: ArrayTree) -> ArrayTree:
        return transformed_fn.apply(params[group], key, *inputs)

    return _recurrent_network(init, outputs, core)


def shared_recurrent_network(
    group: str,
    torso: Torso,
    core: RecurrentCore,
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """A head of its own, under `group`, on a torso and a memory that all share."""
    _check_memory(group, True, space, copies)
    lower = hk.transform(_recurrent_features(torso, core, space))
    upper = hk.transform(lambda features: head.read(torso, features))

    def init(key: Key) -> Params:
        inputs = _example_step(space, core)
        shared_params = lower.init(group_key(SHARED, key), *inputs)
        features, _ = lower.apply(shared_params, None, *inputs)
        return {
            SHARED: shared_params,
            group: upper.init(group_key(group, key), features),
        }

    def outputs(params: Params, key: Key | None, *inputs: ArrayTree) -> ArrayTree:
        features, carries = lower.apply(params[SHARED], key, *inputs)
        return upper.apply(params[group], key, features), carries

    return _recurrent_network(init, outputs, core)


def _recurrent_features(
    torso: Torso, core: RecurrentCore, space: gymnasium.Space
) -> Callable:
    """From observations, the memory before them and where episodes begin: features."""
    prepare = torso.input_reader(space)

    def unroll_features(
        obs: ArrayTree, carry: ArrayTree, first: Array
    ) -> tuple[Array, ArrayTree]:
        features = torso.features(prepare(_merge_time(obs)))
        return _unroll_core(core, features, carry, first)

    return unroll_features


def _check_memory(
    group: str, is_shared: bool, space: gymnasium.Space, copies: Any
) -> None:
    """Refuses what no memory is made for."""
    if copies is not None:
        raise RlcliError(
            f"network function `{group}` is wanted {copies} times, and has a memory",
            "leave out `memory`, or `critics`",
        )
    if is_shared and isinstance(space, Pair):
        raise RlcliError(
            f"network function `{group}` takes an action, and shares a memory that "
            "takes none",
            "give it a network of its own, or leave out `memory`",
        )


def _recurrent_network(
    init: Callable, outputs: Callable, core: RecurrentCore
) -> Network:
    """`outputs` gives what all steps say in one batch `[T · B, ...]`, and carries."""

    def apply(
        params: Params, key: Key | None, obs: ArrayTree, carry: ArrayTree, first: Array
    ) -> tuple[ArrayTree, ArrayTree]:
        if not jax.tree.leaves(carry):
            raise RlcliError(
                "the network has a memory, and the updater carries none",
                "leave out `memory`, or choose an updater that takes one",
            )
        outputs_flat, carries = outputs(params, key, obs, carry, first)
        return jax.tree.map(
            lambda leaf: leaf.reshape((*first.shape, *leaf.shape[1:])), outputs_flat
        ), carries

    return Network(init, apply, core.initial)


def _unroll_core(
    core: RecurrentCore, features: Array, carry: ArrayTree, first: Array
) -> tuple[Array, ArrayTree]:
    """Features `[T · B, F]` as the memory reads them out, and its carries."""
    outputs, carries = core.unroll(
        features.reshape((*first.shape, features.shape[-1])), carry, first
    )
    return _merge_time(outputs), carries


def _merge_time(tree: ArrayTree) -> ArrayTree:
    """`[T, B, ...]` as `[T · B, ...]`."""
    return jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), tree)


def _example_step(space: gymnasium.Space, core: RecurrentCore) -> tuple:
    """One step of some environments: observations, a carry, and where it begins."""
    obs = example_batch(space)
    batch = jax.tree.leaves(obs)[0].shape[0]
    single_step = jax.tree.map(lambda leaf: leaf[None], obs)
    return single_step, core.initial(batch), jnp.zeros((1, batch), bool)


def apply_to_next(
    network: Network, params: Params, next_obs: ArrayTree, carries: ArrayTree
) -> ArrayTree:
    """Outputs `[T, B, ...]` at the next observations, each from its own carry.

    All at once, one step from the carries `[T, B, ...]` after the steps that led there.
    Nothing is forgotten: the next observation is of the same episode.
    """
    shape = jax.tree.leaves(next_obs)[0].shape[:2]
    obs = jax.tree.map(lambda leaf: leaf[None], _merge_time(next_obs))
    first = jnp.zeros((1, shape[0] * shape[1]), bool)
    outputs, _ = network.apply(params, None, obs, _merge_time(carries), first)
    return jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[2:])), outputs)


def is_recurrent(network: Network) -> bool:
    """Whether a network carries anything."""
    return bool(jax.tree.leaves(jax.eval_shape(lambda: network.initial(1))))
