"""Control flow: run a function 0 or 1 times, and select between two pytrees.

`run_if` is a `cond`, `update_if` a loop of 0 or 1 iterations.
"""

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
    function = jax.jit(function)  # traced once, for the shapes and for the branch
    _, report = jax.eval_shape(function, state, *arguments)
    zeros = zeros_of_shapes(report)
    return jax.lax.cond(
        predicate, function, lambda state, *rest: (state, zeros), state, *arguments
    )


def update_if(
    predicate: Array, update: Callable[[Array, ArrayTree], ArrayTree], state: ArrayTree
) -> ArrayTree:
    """`update(iteration, state)` if the predicate holds, else the unchanged state.

    A loop of 0 or 1 iterations: XLA copies the operands of a `cond`, and computes both
    sides of a select over the whole state, but updates the carry of a loop in place.

    XLA hoists computations that read only parts of the state that `update` does not
    change out of the loop, even if it runs 0 times. An expensive one therefore has to
    depend on `iteration`, which is 0. With a batch axis on the predicate, the loop runs
    if any element holds, and selects.
    """
    count = predicate.astype(jnp.int32)
    return jax.lax.fori_loop(0, count, update, state)


def zeros_of_shapes(shapes: ArrayTree) -> ArrayTree:
    """Zeros with the shapes and dtypes that `jax.eval_shape` returns."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def tree_select(predicate: Array, new: ArrayTree, old: ArrayTree) -> ArrayTree:
    """`new` if the predicate holds, else `old`: computes both, copies neither."""
    return jax.tree.map(lambda a, b: jnp.where(predicate, a, b), new, old)
