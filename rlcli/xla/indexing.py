"""Selection: one entry of each row, by its number."""

from __future__ import annotations

import jax.numpy as jnp

from rlcli.types import Array

_MAX_COMPARED = (
    64  # entries, up to which comparing with all of them costs less than a gather
)


def select_index(rows: Array, index: Array, axis: int = -1) -> Array:
    """Of `rows` the entry `index` along an axis: the same shape without that axis.

    `index` has this shape, or one that broadcasts to it, and lies in the axis. Among
    few entries it looks at all of them: on a processor XLA makes a kernel of its own of
    each step of a gather, and a scatter of its gradient, while a comparison melts into
    whatever is around it.
    """
    rows = jnp.asarray(rows)
    axis %= rows.ndim
    index = jnp.expand_dims(
        jnp.broadcast_to(index, rows.shape[:axis] + rows.shape[axis + 1 :]), axis
    )
    if rows.shape[axis] > _MAX_COMPARED:
        return jnp.take_along_axis(rows, index, axis).squeeze(axis)
    numbers = jnp.arange(rows.shape[axis]).reshape(
        (-1,) + (1,) * (rows.ndim - axis - 1)
    )
    # The others are left out, not multiplied by zero: they may be infinite.
    return jnp.sum(jnp.where(numbers == index, rows, 0), axis, dtype=rows.dtype)
