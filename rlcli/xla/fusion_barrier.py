"""Fusion barriers: keep XLA from computing a value once for every operation it feeds.

On a CPU, XLA fuses elementwise operations with their consumers. It then computes them
once per consumer, and once per element that the consumer writes. That is usually
faster; these functions prevent it where it is not. Imports only types from rlcli.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlcli.types import Array, ArrayTree
from rlcli.xla import backend


def fusion_barrier(function: Callable[..., ArrayTree], min_size: int = 0) -> Callable:
    """Wraps a function of arrays so that XLA does not fuse it with its consumers.

    The function becomes a branch of a conditional, which XLA does not fuse across and
    which costs half a microsecond. The other branch is never taken, because a 32-bit
    number has at most 32 bits set, which XLA does not infer. Under `vmap` there is one
    conditional for the whole batch. On an accelerator the function is not wrapped.

    Args:
        function: from arrays, the first of them not empty, to a pytree of arrays.
            Traced values must be arguments: the function must not close over them.
        min_size: the minimum number of output elements, over the whole batch, for which
            a barrier is added.
    """

    @jax.custom_batching.custom_vmap
    def barrier(*arrays: Array) -> ArrayTree:
        shapes = jax.eval_shape(function, *arrays)
        size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
        if size < min_size or not backend.is_cpu():
            return function(*arrays)

        def zeros(*_: Array) -> ArrayTree:
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        return jax.lax.cond(_always_true(arrays[0]), function, zeros, *arrays)

    @barrier.def_vmap
    def _(size: int, batched: list[bool], *arrays: Array) -> tuple[ArrayTree, Any]:
        axes = [0 if is_batched else None for is_batched in batched]
        outputs = fusion_barrier(jax.vmap(function, axes), min_size)(*arrays)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return barrier


def materialize(tree: ArrayTree) -> ArrayTree:
    """Returns the same arrays, each computed once before it is read."""
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(fusion_barrier(lambda *leaves: leaves)(*leaves))


def round_to_dtype(tree: ArrayTree, count: Array) -> ArrayTree:
    """Returns the same numbers, each rounded to its dtype before it is read.

    Without it XLA may fuse a product with a sum and round them once, depending on how
    it forms kernels, so that two programs give different bits. XLA removes an
    `optimization_barrier` before fusion. It does not see through a cast to integers and
    an XOR with a zero that it cannot prove to be zero.

    Args:
        tree: a pytree of arrays.
        count: an int32 `[]`, never negative, with a value unknown to XLA.
    """
    zero = jnp.minimum(count, 0)

    def through_bits(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        bits = jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}")
        return jax.lax.bitcast_convert_type(bits ^ zero.astype(bits.dtype), leaf.dtype)

    return jax.tree.map(through_bits, tree)


def _always_true(array: Array) -> Array:
    """Always true, but XLA cannot prove it."""
    return jax.lax.population_count(array.ravel()[0].astype(jnp.uint32)) <= 32
