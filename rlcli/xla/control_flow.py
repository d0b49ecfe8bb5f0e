"""Control flow: run a function 0 or 1 times, and select between two pytrees."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rlcli.types import Array, ArrayTree


def run_if(
    predicate: Array, function: Callable, state: ArrayTree, *arguments: ArrayTree
) -> tuple[ArrayTree, ArrayTree]:
    """`function(state, *arguments) -> state, report` if the predicate holds.

    Otherwise returns the unchanged state and a report of zeros. The predicate must not
    have a batch axis: with one, both branches would be computed.
    """
    _, report = jax.eval_shape(function, state, *arguments)
    zeros = zeros_of_shapes(report)
    return jax.lax.cond(
        predicate, function, lambda state, *rest: (state, zeros), state, *arguments
    )


def zeros_of_shapes(shapes: ArrayTree) -> ArrayTree:
    """Zeros with the shapes and dtypes that `jax.eval_shape` returns."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def tree_select(predicate: Array, new: ArrayTree, old: ArrayTree) -> ArrayTree:
    """`new` if the predicate holds, else `old`: computes both, copies neither."""
    return jax.tree.map(lambda a, b: jnp.where(predicate, a, b), new, old)
