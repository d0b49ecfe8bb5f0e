"""Indexing: one entry of each row by its index, and the largest entries."""

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from rlcli.types import Array

_MAX_COMPARED = 64  # entries of a row; up to this a comparison is cheaper than a gather


def is_largest(values: Float[Array, "*batch n"]) -> Bool[Array, "*batch n"]:
    """Marks the largest entries along the last axis: at least one, and its equals.

    `values == max(values)` alone may mark none: XLA may compute the two sides in two
    kernels, which round differently.
    """
    largest = jnp.max(values, axis=-1, keepdims=True)
    first = jnp.argmax(values, axis=-1)[..., None]
    return (values == largest) | (jnp.arange(values.shape[-1]) == first)


def select_index(rows: Array, index: Int[Array, "..."], axis: int = -1) -> Array:
    """Selects the entry `index` of `rows` along an axis, which the result lacks.

    `index` has the shape of the result, or broadcasts to it, and is in bounds. With few
    entries, `index` is compared with all of them. On a CPU, XLA compiles a gather into
    several kernels, and its gradient into a scatter, whereas it fuses a comparison with
    the surrounding operations.
    """
    rows = jnp.asarray(rows)
    axis %= rows.ndim
    index = jnp.expand_dims(
        jnp.broadcast_to(index, rows.shape[:axis] + rows.shape[axis + 1 :]), axis
    )
    if rows.shape[axis] > _MAX_COMPARED:
        return jnp.take_along_axis(rows, index, axis).squeeze(axis)
    positions = jnp.arange(rows.shape[axis]).reshape(
        (-1,) + (1,) * (rows.ndim - axis - 1)
    )
    # The other entries are not multiplied by zero, because they may be infinite.
    return jnp.sum(jnp.where(positions == index, rows, 0), axis, dtype=rows.dtype)
