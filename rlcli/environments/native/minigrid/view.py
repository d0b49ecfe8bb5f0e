"""The agent's view: the square in front of it, without what walls and doors hide."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.minigrid import cells
from rlcli.types import Array
from rlcli.xla.fusion_barrier import materialize


def unit_vector(direction: Array) -> tuple[Array, Array]:
    """The step in a direction, 0 right, 1 down, 2 left or 3 up: x and y (downward)."""
    sign = 1 - (direction & 2)
    is_vertical = direction & 1
    return sign * (1 - is_vertical), sign * is_vertical


def view_coordinates(
    position: Array, direction: Array, size: int
) -> tuple[Array, Array]:
    """The x and y of the cells of a view, int32 `[size, size]` each.

    The first index is the column, from left to right as the agent sees it, and the
    second is the row, from the farthest to that of the agent, who is in the middle.
    """
    dx, dy = unit_vector(direction)
    right = np.arange(size)[:, None] - size // 2
    ahead = size - 1 - np.arange(size)
    x = position[0] + dx * ahead - dy * right
    y = position[1] + dy * ahead + dx * right
    return x, y


def is_inside(grid: Array, x: Array, y: Array) -> Array:
    """Whether coordinates are inside the grid."""
    width, height = grid.shape
    return (x >= 0) & (x < width) & (y >= 0) & (y < height)


def view_cells(grid: Array, position: Array, direction: Array, size: int) -> Array:
    """The cells of the view, uint8 `[size, size]`; walls outside the grid."""
    x, y = view_coordinates(position, direction, size)
    inside = is_inside(grid, x, y)
    # One index into a flat grid: XLA is slower with two.
    index = jnp.where(inside, x * grid.shape[1] + y, 0)
    return jnp.where(inside, grid.ravel()[index], cells.WALL_CELL)


def visible_cells(transparent: Array) -> Array:
    """The cells of a view that are not hidden, bool `[size, size]`.

    MiniGrid's rule: light goes from the agent along each row, to both sides, and from
    every transparent cell that it reaches to the three cells ahead. A row is an integer
    with one bit for each column, so that each operation moves the light of a whole row.
    """
    size = transparent.shape[0]
    columns = np.arange(size)
    clear = jnp.sum(transparent.astype(jnp.int32) << columns[:, None], axis=0)
    lit = jnp.int32(1 << (size // 2))
    rows = []
    for row in reversed(range(size)):
        passing = clear[row]
        lit = _spread(lit, passing, size, jnp.left_shift, jnp.right_shift)
        source = lit & passing & ~(1 << (size - 1))
        ahead = source | source << 1
        lit = _spread(lit, passing, size, jnp.right_shift, jnp.left_shift)
        source = lit & passing & ~1
        rows.append(lit)
        lit = ahead | source | source >> 1
    return _unpack_rows(rows[::-1], size)


def _unpack_rows(rows: list[Array], size: int) -> Array:
    """The bits of rows as a bool array `[size, size]`: column and row.

    XLA would repeat the whole computation for each number that is read from it, so the
    rows are packed into few words, which are computed once.
    """
    per_word = 32 // size
    words = [
        functools.reduce(
            jnp.bitwise_or,
            (lit << offset * size for offset, lit in enumerate(rows[i : i + per_word])),
        )
        for i in range(0, size, per_word)
    ]
    packed = materialize(jnp.stack(words))
    row = np.arange(size)
    bits = row % per_word * size + np.arange(size)[:, None]
    return packed[row // per_word] >> bits & 1 == 1


def _spread(
    lit: Array, passing: Array, size: int, forward: Callable, backward: Callable
) -> Array:
    """Spreads light in one direction of a row, through the bits of `passing`.

    The distance doubles in each round.

    Args:
        lit: the bits of the lit cells of a row.
        passing: the bits of the cells that light passes.
        size: the number of cells.
        forward: the shift in the direction of the light.
        backward: the shift in the other direction.
    """
    distance = 1
    while distance < size:
        lit = lit | forward(lit & passing, distance)
        passing = passing & backward(passing, distance)
        distance *= 2
    return lit & ((1 << size) - 1)
