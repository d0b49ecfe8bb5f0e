"""Memories: what a network carries from step to step, between torso and head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.networks.functions import SHARED, example, key_for
from rlcli.networks.heads import Head
from rlcli.networks.inputs import Pair
from rlcli.networks.torsos import Torso
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Key, Network, Params


class Memory(NamedTuple):
    """A carry, and how steps change it.

    `unroll(features[T, B, F], carry[B, ...], first[T, B]) -> outputs[T, B, size],
    carries[T, B, ...]` is a Haiku function: it forgets where `first`, before the step,
    and gives the carry after each. `initial(batch)` is where it begins.
    """

    initial: Callable[[int], ArrayTree]
    unroll: Callable[[Array, ArrayTree, Array], tuple[Array, ArrayTree]]


@register("memory")
def gru(*, size: Count = 64) -> Memory:
    """A gated recurrent unit (Cho et al., 2014, https://arxiv.org/abs/1406.1078).

        z = σ(W_z x + U_z h)        r = σ(W_r x + U_r h)
        h′ = (1 − z) h + z tanh(W_a x + U_a (r h))

    each with a bias. The carry is h `[B, size]`, zero at first, and h′ is read out.
    """

    def step(weights: Array, carry: Array, inputs: Array) -> Array:
        gates, candidate = inputs[:, : 2 * size], inputs[:, 2 * size :]
        found = jax.nn.sigmoid(gates + carry @ weights[:, : 2 * size])
        update, reset = jnp.split(found, 2, axis=-1)
        new = jnp.tanh(candidate + (reset * carry) @ weights[:, 2 * size :])
        return (1 - update) * carry + update * new

    def initial(batch: int) -> Array:
        return jnp.zeros((batch, size), jnp.float32)

    return Memory(initial, _unroll("gru", 3, size, step, initial, lambda h: h))


@register("memory")
def lstm(*, size: Count = 64) -> Memory:
    """Long short-term memory (Hochreiter & Schmidhuber, 1997), with a forget gate.

        i, f, o = σ(W x + U h)        g = tanh(W_g x + U_g h)
        c′ = f c + i g                h′ = o tanh(c′)

    each with a bias, that of f one higher, so that little is forgotten at first (Gers
    et al., 2000, https://doi.org/10.1162/089976600300015015). The carry is (h, c),
    `[B, size]` each, zero at first, and h′ is read out.
    """

    def step(weights: Array, carry: tuple, inputs: Array) -> tuple[Array, Array]:
        hidden, cell = carry
        each = jnp.split(inputs + hidden @ weights, 4, axis=-1)
        entering, forgetting, leaving = map(
            jax.nn.sigmoid, (each[0], each[1] + 1, each[2])
        )
        cell = forgetting * cell + entering * jnp.tanh(each[3])
        return leaving * jnp.tanh(cell), cell

    def initial(batch: int) -> tuple[Array, Array]:
        nothing = jnp.zeros((batch, size), jnp.float32)
        return nothing, nothing

    return Memory(
        initial, _unroll("lstm", 4, size, step, initial, lambda carry: carry[0])
    )


def _unroll(
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

        def one(carry: ArrayTree, now: tuple[Array, Array]) -> tuple:
            inputs, first = now
            carry = jax.tree.map(
                lambda new, old: jnp.where(first[:, None], new, old), fresh, carry
            )
            carry = step(weights, carry, inputs)
            return carry, carry

        _, carries = jax.lax.scan(one, carry, (inputs, first))
        return read(carries), carries

    return unroll


def own(
    group: str,
    torso: Torso,
    memory: Memory,
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """A function with torso, memory and head of its own, under `group`."""
    _check(group, False, space, copies)
    remembered = _remembering(torso, memory, space)

    def forward(*inputs: ArrayTree) -> tuple[Array, ArrayTree]:
        features, carries = remembered(*inputs)
        return head.read(torso, features), carries

    transformed = hk.transform(forward)

    def init(key: Key) -> Params:
        return {group: transformed.init(key_for(group, key), *_step(space, memory))}

    def outputs(params: Params, key: Key | None, *inputs: ArrayTree) -> ArrayTree:
        return transformed.apply(params[group], key, *inputs)

    return _network(init, outputs, memory)


def sharing(
    group: str,
    torso: Torso,
    memory: Memory,
    head: Head,
    space: gymnasium.Space,
    copies: int | None = None,
) -> Network:
    """A head of its own, under `group`, on a torso and a memory that all share."""
    _check(group, True, space, copies)
    lower = hk.transform(_remembering(torso, memory, space))
    upper = hk.transform(lambda features: head.read(torso, features))

    def init(key: Key) -> Params:
        inputs = _step(space, memory)
        shared = lower.init(key_for(SHARED, key), *inputs)
        features, _ = lower.apply(shared, None, *inputs)
        return {SHARED: shared, group: upper.init(key_for(group, key), features)}

    def outputs(params: Params, key: Key | None, *inputs: ArrayTree) -> ArrayTree:
        features, carries = lower.apply(params[SHARED], key, *inputs)
        return upper.apply(params[group], key, features), carries

    return _network(init, outputs, memory)


def _remembering(torso: Torso, memory: Memory, space: gymnasium.Space) -> Callable:
    """From observations, the memory before them and where episodes begin: features."""
    prepare = torso.reads(space)

    def remembered(
        obs: ArrayTree, carry: ArrayTree, first: Array
    ) -> tuple[Array, ArrayTree]:
        features = torso.features(prepare(_joined(obs)))
        return _recalled(memory, features, carry, first)

    return remembered


def _check(group: str, shared: bool, space: gymnasium.Space, copies: Any) -> None:
    """Refuses what no memory is made for."""
    if copies is not None:
        raise RlcliError(
            f"network function `{group}` is wanted {copies} times, and has a memory",
            "leave out `memory`, or `critics`",
        )
    if shared and isinstance(space, Pair):
        raise RlcliError(
            f"network function `{group}` takes an action, and shares a memory that "
            "takes none",
            "give it a network of its own, or leave out `memory`",
        )


def _network(init: Callable, outputs: Callable, memory: Memory) -> Network:
    """`outputs` gives what all steps say in one batch `[T · B, ...]`, and carries."""

    def apply(
        params: Params, key: Key | None, obs: ArrayTree, carry: ArrayTree, first: Array
    ) -> tuple[ArrayTree, ArrayTree]:
        if not jax.tree.leaves(carry):
            raise RlcliError(
                "the network has a memory, and the updater carries none",
                "leave out `memory`, or choose an updater that takes one",
            )
        found, carries = outputs(params, key, obs, carry, first)
        return jax.tree.map(
            lambda leaf: leaf.reshape((*first.shape, *leaf.shape[1:])), found
        ), carries

    return Network(init, apply, memory.initial)


def _recalled(
    memory: Memory, features: Array, carry: ArrayTree, first: Array
) -> tuple[Array, ArrayTree]:
    """Features `[T · B, F]` as the memory reads them out, and its carries."""
    found, carries = memory.unroll(
        features.reshape((*first.shape, features.shape[-1])), carry, first
    )
    return _joined(found), carries


def _joined(tree: ArrayTree) -> ArrayTree:
    """`[T, B, ...]` as `[T · B, ...]`."""
    return jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), tree)


def _step(space: gymnasium.Space, memory: Memory) -> tuple:
    """One step of some environments: observations, a carry, and where it begins."""
    obs = example(space)
    batch = jax.tree.leaves(obs)[0].shape[0]
    alone = jax.tree.map(lambda leaf: leaf[None], obs)
    return alone, memory.initial(batch), jnp.zeros((1, batch), bool)


def following(
    network: Network, params: Params, next_obs: ArrayTree, carries: ArrayTree
) -> ArrayTree:
    """Outputs `[T, B, ...]` at the next observations, each from its own carry.

    All at once, one step from the carries `[T, B, ...]` after the steps that led there.
    Nothing is forgotten: the next observation is of the same episode.
    """
    shape = jax.tree.leaves(next_obs)[0].shape[:2]
    obs = jax.tree.map(lambda leaf: leaf[None], _joined(next_obs))
    going = jnp.zeros((1, shape[0] * shape[1]), bool)
    found, _ = network.apply(params, None, obs, _joined(carries), going)
    return jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[2:])), found)


def recurrent(network: Network) -> bool:
    """Whether a network carries anything."""
    return bool(jax.tree.leaves(jax.eval_shape(lambda: network.initial(1))))
