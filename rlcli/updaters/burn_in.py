"""Burn-in: steps in front of a sequence that refresh a memory, and teach nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlcli.types import Array, ArrayTree, Transition


class RowOrder(NamedTuple):
    """Rows of `[T, B, ...]` in another order, in each column; and back again."""

    forward: Callable[[ArrayTree], ArrayTree]
    backward: Callable[[ArrayTree], ArrayTree]


def refresh_carry(
    steps: Transition, weight: Array, carries: Callable[[ArrayTree], ArrayTree]
) -> tuple[Transition, RowOrder]:
    """The steps in the order in which to learn from them, with the memory at each.

    What replayed sequences begin with is the memory of long ago, which the rows in
    front, that weigh 0, have to bring up to date: "using a portion of the replay
    sequence only for unrolling the network and producing a start state" (Kapturowski
    et al., 2019, https://openreview.net/forum?id=r1lyTjAqYX, section 3). So these go
    behind the others, where no gradient of the others passes, and those begin with the
    memory that was reached: a number, like the observation.

    `carries(carry)` is what is carried after each step, `[T, B, ...]`, from the carry
    before the first. Steps that know what each was taken with stay as they are.
    """
    carry = steps.extras.get("carry", ())
    rows = weight.shape[0]
    if all(leaf.shape[0] == rows for leaf in jax.tree.leaves(carry)):
        return steps, RowOrder(lambda tree: tree, lambda tree: tree)
    begin = jax.tree.map(lambda leaf: leaf[0], carry)
    carries_before = jax.tree.map(
        lambda first, after: jnp.concatenate([first[None], after[:-1]]),
        begin,
        jax.lax.stop_gradient(carries(begin)),
    )
    order = _rotate_rows(jnp.argmax(weight > 0, axis=0), rows)
    steps = steps._replace(extras={**steps.extras, "carry": carries_before})
    return order.forward(steps), order


def _rotate_rows(front: Array, rows: int) -> RowOrder:
    """The first `front[B]` of the rows go behind the others."""
    forward = (jnp.arange(rows)[:, None] + front) % rows
    back = (jnp.arange(rows)[:, None] - front) % rows

    def reorder(index: Array, tree: ArrayTree) -> ArrayTree:
        def reorder_leaf(leaf: Array) -> Array:
            wide = index.reshape(index.shape + (1,) * (leaf.ndim - 2))
            return jnp.take_along_axis(leaf, wide, axis=0)

        return jax.tree.map(reorder_leaf, tree)

    return RowOrder(
        lambda tree: reorder(forward, tree), lambda tree: reorder(back, tree)
    )
