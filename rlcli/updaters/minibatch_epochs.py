"""Minibatch epochs: several epochs over an unroll, in minibatches of sequences."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree, Key, PerRow
from rlcli.updaters.learner import masked_mean
from rlcli.xla.data_axis import max_over_devices
from rlcli.xla.random_bits import permutation

_ROUNDING = 2.0**-21  # four steps of float32, relative to the number


def _split_sequences(batch: ArrayTree, length: int, updater: str) -> ArrayTree:
    """Reshapes `[T, B, ...]` to `[length, T / length · B, ...]`, in order of time."""
    steps, environments = jax.tree.leaves(batch)[0].shape[:2]
    if steps % length:
        raise RlcliError(
            f"updater `{updater}` cannot split an unroll of {steps} steps into "
            f"sequences of {length}",
            "make `train.unroll` a multiple of `updater.sequence`",
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
    length: int,
    epochs: int,
    minibatches: int,
    updater: str,
) -> tuple[ArrayTree, ArrayTree]:
    """Calls `learn(state, minibatch) -> state, metrics` per minibatch and epoch.

    The batch is `[T, B, ...]`. It is split into N sequences of `length` steps, which
    are shuffled in each epoch: a minibatch is `[length, N / minibatches, ...]`. The
    metrics are means over all calls.
    """
    batch = _split_sequences(batch, length, updater)
    rows = jax.tree.leaves(batch)[0].shape[1]
    if rows % minibatches:
        raise RlcliError(
            f"updater `{updater}` cannot split {rows} sequences into {minibatches} "
            "equal minibatches",
            "make `updater.minibatches` a divisor of `train.unroll` × "
            "`environment.num_envs` / `updater.sequence`",
        )
    if epochs == minibatches == 1:
        return learn(state, batch)  # the order does not matter
    keys = jax.random.split(key, epochs)
    orders = jax.vmap(lambda epoch_key: permutation(epoch_key, rows))(keys)
    orders = orders.reshape((epochs * minibatches, rows // minibatches))

    def scan_step(
        state: ArrayTree, index: Int[Array, "N"]
    ) -> tuple[ArrayTree, ArrayTree]:
        minibatch = jax.tree.map(lambda leaf: jnp.take(leaf, index, axis=1), batch)
        return learn(state, minibatch)

    state, metrics = jax.lax.scan(scan_step, state, orders)
    return state, jax.tree.map(lambda metric: jnp.mean(metric, axis=0), metrics)


def masked_variance(values: PerRow, weight: PerRow) -> Float[Array, ""]:
    """The variance over rows of weight > 0."""
    return masked_mean((values - masked_mean(values, weight)) ** 2, weight)


def is_constant(values: PerRow, weight: PerRow) -> Bool[Array, ""]:
    """Whether values of weight > 0 differ by no more than rounding.

    Their computed variance is the square of the mean's rounding error, not 0.
    """
    is_row = weight > 0
    largest, smallest = max_over_devices(
        (
            jnp.max(values, where=is_row, initial=-jnp.inf),
            jnp.max(-values, where=is_row, initial=-jnp.inf),
        )
    )
    size = jnp.maximum(jnp.abs(largest), jnp.abs(smallest))
    return largest + smallest <= _ROUNDING * size
