"""Fusion: how to keep XLA from working things out anew for everything that reads them.

On a processor XLA fuses what is elementwise with its reader, once for each reader, and
for each of the elements that this writes. That is mostly for the good; where it is not,
these draw a line. Imports nothing of ours but types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlcli.types import Array, ArrayTree


def fusion_barrier(function: Callable[..., ArrayTree], min_size: int = 0) -> Callable:
    """The same function of arrays, as a pass of its own.

    It becomes a branch of a conditional, over whose edge XLA does not fuse, and which
    costs half a microsecond. The other branch is never taken: XLA cannot know that no
    number of 32 bits has more than 32 of them set. Under `vmap` there is one for the
    whole batch, and on an accelerator there is none.

    Args:
        function: of arrays, with at least one number among them; gives a tree of them.
            What is traced comes in as an argument: it may not close over any.
        min_size: how many numbers it has to give, over the whole batch, to be worth it.
    """

    @jax.custom_batching.custom_vmap
    def barrier(*arrays: Array) -> ArrayTree:
        shapes = jax.eval_shape(function, *arrays)
        size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
        if size < min_size or jax.default_backend() != "cpu":
            return function(*arrays)

        def nothing(*_: Array) -> ArrayTree:
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        return jax.lax.cond(_always_true(arrays[0]), function, nothing, *arrays)

    @barrier.def_vmap
    def _(size: int, batched: list[bool], *arrays: Array) -> tuple[ArrayTree, Any]:
        del size
        axes = [0 if is_batched else None for is_batched in batched]
        outputs = fusion_barrier(jax.vmap(function, axes), min_size)(*arrays)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return barrier


def materialize(tree: ArrayTree) -> ArrayTree:
    """The same arrays, each worked out once, before anything reads it."""
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(fusion_barrier(lambda *leaves: leaves)(*leaves))


def round_to_dtype(tree: ArrayTree, count: Array) -> ArrayTree:
    """The same numbers, each rounded to its type before anything reads it.

    Else XLA fuses a product with the sum that reads it, and rounds both as one, or does
    not, as its kernels happen to be cut: other bits in one program than in another. It
    drops an `optimization_barrier` before it fuses; through integers, and a zero that
    it cannot prove to be one, it does not see.

    Args:
        tree: of arrays.
        count: an int32 `[]` that is never negative, and that XLA does not know.
    """
    zero = jnp.minimum(count, 0)

    def through_bits(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        bits = jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}")
        return jax.lax.bitcast_convert_type(bits ^ zero.astype(bits.dtype), leaf.dtype)

    return jax.tree.map(through_bits, tree)


def _always_true(array: Array) -> Array:
    """True, for all that XLA knows it might not be."""
    return jax.lax.population_count(array.ravel()[0].astype(jnp.uint32)) <= 32
