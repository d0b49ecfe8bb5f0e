"""Cells: an object, its colour and its state, packed into one byte."""

import jax.numpy as jnp
import numpy as np

from rlcli.types import Array

# MiniGrid's numbers of objects. A door has three numbers here, one for each state.
EMPTY, WALL, OPEN_DOOR, KEY, BALL, GOAL = 1, 2, 4, 5, 6, 8
CLOSED_DOOR, LOCKED_DOOR = 11, 12
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
COLOURS = 6
# The highest values of the three channels: MiniGrid's agent, grey, and locked.
MAX_CHANNELS = (10, GREY, 2)

_COLOUR_SHIFT = 4
_OPEN_STATE = CLOSED_DOOR - 1  # the states are 0 open, 1 closed and 2 locked

EMPTY_CELL = np.uint8(EMPTY)
WALL_CELL = np.uint8(WALL | GREY << _COLOUR_SHIFT)
GOAL_CELL = np.uint8(GOAL | GREEN << _COLOUR_SHIFT)


def pack_cell(kind: Array | int, colour: Array | int) -> Array:
    """Packs cells into bytes: the object in four bits, and its colour."""
    return jnp.asarray(kind | colour << _COLOUR_SHIFT, jnp.uint8)


def kind_of(cell: Array) -> Array:
    """The object in a cell, with the state of a door."""
    return cell & ((1 << _COLOUR_SHIFT) - 1)


def colour_of(cell: Array) -> Array:
    """The colour of a cell."""
    return cell >> _COLOUR_SHIFT


def is_transparent(cell: Array) -> Array:
    """Whether the agent sees what is behind a cell."""
    kind = kind_of(cell)
    return (kind != WALL) & (kind < CLOSED_DOOR)


def channels(cell: Array) -> Array:
    """MiniGrid's encoding of cells, uint8 `[..., 3]`: object, colour and state."""
    kind = kind_of(cell)
    is_shut = kind >= CLOSED_DOOR
    state = jnp.where(is_shut, kind - _OPEN_STATE, 0)
    objects = jnp.where(is_shut, OPEN_DOOR, kind)
    return jnp.stack([objects, colour_of(cell), state], axis=-1).astype(jnp.uint8)


def room(width: int, height: int) -> np.ndarray:
    """An empty room with walls around it, uint8 `[width, height]`: column and row."""
    grid = np.full((width, height), WALL_CELL)
    grid[1:-1, 1:-1] = EMPTY_CELL
    return grid
