"""Burn-in: leading steps of a sequence that only refresh the recurrent carry."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int

from rlcli.types import Array, ArrayTree, PerRow, Transition


class RowOrder(NamedTuple):
    """A permutation of the rows of `[T, B, ...]` in each column, and its inverse."""

    forward: Callable[[ArrayTree], ArrayTree]
    backward: Callable[[ArrayTree], ArrayTree]


def first_carry(steps: Transition) -> ArrayTree:
    """The recurrent carry before the first step, `[B, ...]`."""
    return jax.tree.map(lambda leaf: leaf[0], steps.extras["carry"])


def refresh_carry(
    steps: Transition, weight: PerRow, carries: Callable[[ArrayTree], ArrayTree]
) -> tuple[Transition, RowOrder]:
    """Returns the steps in learning order with a refreshed carry each, and that order.

    Replayed sequences begin with a stored, stale carry. Burn-in rows, which come first
    and have weight 0, refresh it: "using a portion of the replay sequence only for
    unrolling the network and producing a start state" (Kapturowski et al., 2019,
    https://openreview.net/forum?id=r1lyTjAqYX, section 3). The burn-in rows move behind
    the learning rows, so that no gradient passes through them. The learning rows begin
    with the refreshed carry, as a constant.

    `carries(carry)` returns the carry after each step, `[T, B, ...]`, from the carry
    before the first. Steps that already store a carry per row stay unchanged.
    """
    carry = steps.extras.get("carry", ())
    rows = weight.shape[0]
    if all(leaf.shape[0] == rows for leaf in jax.tree.leaves(carry)):
        return steps, RowOrder(lambda tree: tree, lambda tree: tree)
    initial = first_carry(steps)
    carries_before = jax.tree.map(
        lambda first, after: jnp.concatenate([first[None], after[:-1]]),
        initial,
        jax.lax.stop_gradient(carries(initial)),
    )
    order = _rotate_rows(jnp.argmax(weight > 0, axis=0), rows)
    steps = steps._replace(extras={**steps.extras, "carry": carries_before})
    return order.forward(steps), order


def _rotate_rows(front: Int[Array, "B"], rows: int) -> RowOrder:
    """Moves the first `front` rows of each column behind the others."""
    forward = (jnp.arange(rows)[:, None] + front) % rows
    back = (jnp.arange(rows)[:, None] - front) % rows

    def reorder(index: Int[Array, "T B"], tree: ArrayTree) -> ArrayTree:
        def reorder_leaf(leaf: Array) -> Array:
            wide = index.reshape(index.shape + (1,) * (leaf.ndim - 2))
            return jnp.take_along_axis(leaf, wide, axis=0)

        return jax.tree.map(reorder_leaf, tree)

    return RowOrder(
        lambda tree: reorder(forward, tree), lambda tree: reorder(back, tree)
    )
