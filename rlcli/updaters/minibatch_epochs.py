"""Passes: over an unroll several times, in minibatches of sequences."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree, Count, Key
from rlcli.updaters.learner import masked_mean


def sequence_length(sequence: Count | None, is_whole_unroll: bool, steps: int) -> int:
    """Steps that stay together: where it is not said, all or one."""
    return sequence or (steps if is_whole_unroll else 1)


def split_sequences(batch: ArrayTree, length: int, updater: str) -> ArrayTree:
    """`[T, B, ...]` as `[length, T / length · B, ...]`; the order within is kept."""
    steps, environments = jax.tree.leaves(batch)[0].shape[:2]
    if steps % length:
        raise RlcliError(
            f"updater `{updater}` cannot cut an unroll of {steps} steps in sequences "
            f"of {length}",
            "choose `train.unroll` as a multiple of `updater.sequence`",
        )

    def cut(leaf: Array) -> Array:
        pieces = leaf.reshape((steps // length, length, *leaf.shape[1:]))
        return jnp.moveaxis(pieces, 1, 0).reshape(
            (length, steps // length * environments, *leaf.shape[2:])
        )

    return jax.tree.map(cut, batch)


def minibatch_epochs(
    learn: Callable[[ArrayTree, ArrayTree], tuple[ArrayTree, ArrayTree]],
    state: ArrayTree,
    batch: ArrayTree,
    key: Key,
    *,
    epochs: int,
    minibatches: int,
    updater: str,
) -> tuple[ArrayTree, ArrayTree]:
    """`learn(state, part) -> state, metrics` on each minibatch of each epoch.

    The batch is `[L, N, ...]`: N sequences, dealt anew in each epoch. The metrics are
    means over all steps.
    """
    rows = jax.tree.leaves(batch)[0].shape[1]
    if rows % minibatches:
        raise RlcliError(
            f"updater `{updater}` cannot deal {rows} sequences to {minibatches} "
            "minibatches",
            "choose `updater.minibatches` as a divisor of `train.unroll` times "
            "`environment.num_envs`, over `updater.sequence`",
        )
    if epochs == minibatches == 1:
        return learn(state, batch)  # all of it, in whatever order
    keys = jax.random.split(key, epochs)
    orders = jax.vmap(lambda epoch_key: jax.random.permutation(epoch_key, rows))(keys)
    orders = orders.reshape((epochs * minibatches, rows // minibatches))

    def turn(state: ArrayTree, index: Array) -> tuple[ArrayTree, ArrayTree]:
        part = jax.tree.map(lambda leaf: jnp.take(leaf, index, axis=1), batch)
        return learn(state, part)

    state, metrics = jax.lax.scan(turn, state, orders)
    return state, jax.tree.map(lambda metric: jnp.mean(metric, axis=0), metrics)


def masked_variance(values: Array, weight: Array) -> Array:
    """The variance over the rows that count."""
    return masked_mean((values - masked_mean(values, weight)) ** 2, weight)
