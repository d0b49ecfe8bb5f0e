"""KeyCorridor: find a key behind doors, and pick up a ball behind a locked door."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.minigrid import cells
from rlcli.environments.native.minigrid.game import PICK_UP, Level, MiniGridState, Start
from rlcli.environments.native.minigrid.levels import register_levels
from rlcli.types import Array
from rlcli.xla.fusion_barrier import materialize

COLUMNS = 3  # rooms side by side: the corridor is the middle column
FIRST_DOOR_DRAW = 6  # random numbers in front of those of the doors


@register_levels(
    {
        f"MiniGrid-KeyCorridorS{size}R{rows}-v0": {"room_size": size, "num_rows": rows}
        for size, rows in ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3))
    },
    max_steps=lambda room_size, num_rows: 30 * room_size**2,
)
def key_corridor(room_size: int, num_rows: int) -> Level:
    """Finds a hidden key: reward 1 − 0.9 t / max_steps for picking up the ball.

    Rooms lie on both sides of a corridor. The ball is in a room on the right, behind a
    locked door, and the key of that door is in a room on the left. Further doors
    connect all other rooms to the corridor. The rooms, doors, colours, objects, and the
    agent's cell and direction are random. The observation has `mission`, too, int32:
    the colour of the ball.
    """

    def judge(
        state: MiniGridState, action: Array, entered: Array
    ) -> tuple[Array, Array]:
        # The ball is the only one.
        has_ball = cells.kind_of(state.carrying) == cells.BALL
        success = (action == PICK_UP) & has_ball
        return success, success

    return Level(*_starts(room_size, num_rows), judge, mission_colour=lambda task: task)


def _starts(size: int, rows: int) -> tuple[int, Callable[[Array], Start]]:
    """The number of random numbers of a start, and the function of them."""
    pitch, inside = size - 1, size - 2  # cells from room to room, and inside a room
    corridor = _rooms(size, rows)
    column, row = np.mgrid[: corridor.shape[0], : corridor.shape[1]]
    walls = np.array(_walls(rows))
    wall_x, wall_y, is_vertical = walls.T
    num_doors = len(walls)
    # The agent starts in the middle room of the corridor, or in a gap beside it.
    middle = rows // 2
    lowest_y = middle * pitch + (middle == 0)
    heights = (middle + 1) * pitch - (middle == rows - 1) - lowest_y + 1

    def begin(uniform: Array) -> Start:
        locked_row = _choose(uniform[0], rows)
        ball, ball_colour = _choose(uniform[1], inside**2), _choose(uniform[2], 6)
        key_row, key = _choose(uniform[3], rows), _choose(uniform[4], inside**2)
        *draws, times = uniform[FIRST_DOOR_DRAW:].reshape(3, num_doors)
        offsets, colours = _choose(draws[0], inside), _choose(draws[1], 6)
        # Computed once, not once for each cell of the grid.
        doors = materialize(
            Doors(
                jnp.stack(_door_kinds(times, locked_row, rows)),
                wall_x * pitch + jnp.where(is_vertical, 0, 1 + offsets),
                wall_y * pitch + jnp.where(is_vertical, 1 + offsets, 0),
                colours,
            )
        )
        grid = jnp.asarray(corridor)
        for i in range(num_doors):
            is_door = (column == doors.x[i]) & (row == doors.y[i]) & (doors.kind[i] > 0)
            door = cells.pack_cell(doors.kind[i], doors.colour[i])
            grid = jnp.where(is_door, door, grid)
        locked = rows + locked_row
        locked_y, key_colour = doors.y[locked], doors.colour[locked]
        ball_cell = cells.pack_cell(cells.BALL, ball_colour)
        for left, top, index, cell in (
            (2 * pitch, locked_row * pitch, ball, ball_cell),
            (0, key_row * pitch, key, cells.pack_cell(cells.KEY, key_colour)),
        ):
            x, y = left + 1 + index // inside, top + 1 + index % inside
            grid = jnp.where((column == x) & (row == y), cell, grid)

        # The agent does not start in front of the locked door, looking at it.
        excluded = ((inside - 1) * heights + locked_y - lowest_y) * 4
        is_excluded = (locked_row == middle).astype(jnp.int32)
        place = _choose(uniform[5], inside * heights * 4 - is_excluded)
        place += is_excluded * (place >= excluded)
        cell, direction = place // 4, place % 4
        x, y = pitch + 1 + cell // heights, lowest_y + cell % heights
        return Start(grid, jnp.stack([x, y]), direction, ball_colour)

    return FIRST_DOOR_DRAW + 3 * num_doors, begin


class Doors(NamedTuple):
    """The doors between rooms, `[walls]` each, in the order of `_walls`."""

    kind: Array  # 0: no door
    x: Array
    y: Array
    colour: Array


def _walls(rows: int) -> list[tuple[int, int, bool]]:
    """The walls that may have doors: x and y in rooms, and whether it is vertical.

    From left to right between the columns of rooms, then between the rows of rooms: on
    the left, then on the right.
    """
    between_columns = [(x, y, True) for x in (1, 2) for y in range(rows)]
    between_rows = [(x, y, False) for x in (0, 2) for y in range(1, rows)]
    return between_columns + between_rows


def _door_kinds(times: Array, locked_row: Array, rows: int) -> list[Array]:
    """The kind of the door in each wall, 0 where there is none.

    MiniGrid adds doors to random walls until every room is reachable. The same: every
    wall gets a door at a random time, until the time when all rooms are reachable. A
    room is reachable from the corridor at the minimum, over the ways to it, of the
    latest time on the way. The locked door is there from the beginning, and its room
    has no other.

    Args:
        times: when each wall would get a door, in [0, 1).
        locked_row: the row of the room on the right behind the locked door.
        rows: the number of rows of rooms.
    """
    never, always = jnp.float32(2), jnp.float32(-1)
    is_locked = [locked_row == y for y in range(rows)]
    beside, along = list(times[: 2 * rows]), list(times[2 * rows :])
    for y in range(rows):
        beside[rows + y] = jnp.where(is_locked[y], always, beside[rows + y])
    for y in range(rows - 1):
        touches = is_locked[y] | is_locked[y + 1]
        along[rows - 1 + y] = jnp.where(touches, never, along[rows - 1 + y])
    end = jnp.maximum(
        _connection_time(beside[:rows], along[: rows - 1]),
        _connection_time(beside[rows:], along[rows - 1 :]),
    )
    kinds = []
    for time in (*beside, *along):
        unlocked = jnp.where(time <= end, cells.CLOSED_DOOR, 0)
        kinds.append(jnp.where(time == always, cells.LOCKED_DOOR, unlocked))
    return kinds


def _connection_time(beside: list[Array], along: list[Array]) -> Array:
    """The time when all rooms of one side are reachable.

    Args:
        beside: the times of the doors from the corridor to each room.
        along: the times of the doors from each room to the next.
    """
    reached = list(beside)
    for y in range(1, len(reached)):
        reached[y] = jnp.minimum(reached[y], jnp.maximum(reached[y - 1], along[y - 1]))
    for y in reversed(range(len(along))):
        reached[y] = jnp.minimum(reached[y], jnp.maximum(reached[y + 1], along[y]))
    return functools.reduce(jnp.maximum, reached)


def _rooms(size: int, rows: int) -> np.ndarray:
    """The rooms and the corridor without doors, packed cells."""
    pitch = size - 1
    grid = cells.room(COLUMNS * pitch + 1, rows * pitch + 1)
    grid[::pitch] = cells.WALL_CELL
    grid[:, ::pitch] = cells.WALL_CELL
    grid[pitch + 1 : 2 * pitch, 1:-1] = cells.EMPTY_CELL
    return grid


def _choose(uniform: Array, number: Array | int) -> Array:
    """Maps numbers in [0, 1) to 0 … number − 1, uniformly."""
    return (uniform * number).astype(jnp.int32)
