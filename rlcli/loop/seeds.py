"""Seeds: the same program for one seed or several."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, ArrayTree


def vmap_seeds(function: Callable, seeds: int, inputs: Any, outputs: Any) -> Callable:
    """`vmap` over the axis of seeds; a single seed is squeezed, at no cost."""
    if seeds > 1:
        return jax.vmap(function, in_axes=inputs, out_axes=outputs)

    def single(*arguments: Any) -> Any:
        return expand_seed(function(*squeeze_seed(arguments, inputs)), outputs)

    return single


def map_seeds(function: Callable, seeds: int, outputs: Any) -> Callable:
    """A function of all seeds that calls `function` for one after the other.

    For the start of a run, where users' functions may call LAPACK, as orthogonal
    initialization does. On a CPU, JAX divides a batch of matrices among the threads of
    the pool that runs the program, and waits there: `vmap` would make such a batch of
    the seeds, and can deadlock.
    """
    if seeds == 1:
        return vmap_seeds(function, seeds, 0, outputs)

    def one_by_one(*arguments: Any) -> Any:
        results = jax.lax.map(lambda each: function(*each), arguments)
        return map_leaves(
            lambda axis, leaf: leaf[0] if axis is None else leaf, outputs, results
        )

    return one_by_one


def squeeze_seed(tree: ArrayTree, axes: Any) -> ArrayTree:
    """Removes the axis of a single seed where `axes` is not None."""
    return map_leaves(lambda axis, leaf: leaf if axis is None else leaf[0], axes, tree)


def expand_seed(tree: ArrayTree, axes: Any) -> ArrayTree:
    """Adds an axis for a single seed where `axes` is not None."""
    return map_leaves(
        lambda axis, leaf: leaf if axis is None else jnp.expand_dims(leaf, 0),
        axes,
        tree,
    )


def map_leaves(function: Callable, axes: Any, *trees: ArrayTree) -> ArrayTree:
    """`function(axis, *leaves)` of every leaf; `axes` is a prefix of the trees."""
    return jax.tree.map(
        lambda axis, *parts: jax.tree.map(functools.partial(function, axis), *parts),
        axes,
        *trees,
        is_leaf=lambda axis: axis is None,
    )


def pad_seeds(padded: int, tree: ArrayTree, axes: Any = 0) -> ArrayTree:
    """Repeats the last seed, `[S, ...]` to `[padded, ...]`, on the host."""

    def pad(axis: int | None, leaf: Array) -> Array:
        if axis is None or leaf.shape[0] == padded:
            return leaf
        return np.asarray(leaf)[np.minimum(np.arange(padded), leaf.shape[0] - 1)]

    return map_leaves(pad, axes, tree)


def resize_seeds(seeds: int, shapes: ArrayTree, axes: Any = 0) -> ArrayTree:
    """Shapes for another number of seeds, without their shardings."""
    return map_leaves(
        lambda axis, leaf: jax.ShapeDtypeStruct(
            leaf.shape if axis is None else (seeds, *leaf.shape[1:]), leaf.dtype
        ),
        axes,
        shapes,
    )


def drop_padding(seeds: int, tree: ArrayTree, axes: Any = 0) -> ArrayTree:
    """Drops the padding, `[P, ...]` to `[seeds, ...]`.

    A slice of an array on a device is a copy, of one on the host it is not.
    """

    def drop(axis: int | None, leaf: Array) -> Array:
        if axis is None or leaf.shape[0] == seeds:
            return leaf
        return leaf[:seeds]

    return map_leaves(drop, axes, tree)


def take_seeds(seeds: slice, tree: ArrayTree, axes: Any = 0) -> ArrayTree:
    """The arrays of some seeds, `[S, ...]` to `[seeds, ...]`."""
    return map_leaves(
        lambda axis, leaf: leaf if axis is None else leaf[seeds], axes, tree
    )
