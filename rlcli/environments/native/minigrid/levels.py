"""Levels: Empty, DoorKey and Memory, and the registration of the levels of a family."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.minigrid import cells
from rlcli.environments.native.minigrid.game import (
    Level,
    MiniGridState,
    Start,
    ViewSize,
    level_environment,
    reaches_goal,
)
from rlcli.registry import register
from rlcli.types import Array, Core, Positive

# What the docstrings of all levels end with.
_ENDING = """
    Observation: a dict of `image`, uint8 `[7, 7, 3]`, and `direction`, int32: 0 right,
    1 down, 2 left, 3 up. The image is the square in front of the agent, which is in the
    middle of its last row: column, row, and channel: object, colour, state. Hidden
    cells are 0. Actions: 0 turn left, 1 turn right, 2 go forward, 3 pick up, 4 drop, 5
    open or close, 6 nothing. As in MiniGrid (Chevalier-Boisvert et al., 2023,
    https://arxiv.org/abs/2306.13831).

    Args:
        max_steps: the number of steps in the reward. The default is that of
            `time_limit`, which ends an episode.
        agent_view_size: the width of the observed square, in cells: odd, 3 … 31.
        see_through_walls: whether walls and doors do not hide what is behind them.
    """


def register_levels(
    levels: Mapping[str, Mapping[str, Any]],
    max_steps: Callable[..., int],
    *,
    see_through_walls: bool = False,
) -> Callable[[Callable[..., Level]], Callable[..., Level]]:
    """Returns a decorator that registers the environments of the levels of a family.

    Args:
        levels: the arguments of the decorated function, by the id of the level.
        max_steps: the time limit of a level, from the same arguments. It is also the
            default of the option `max_steps`.
        see_through_walls: the default of the option.
    """

    def decorate(make_level: Callable[..., Level]) -> Callable[..., Level]:
        for name, fixed in levels.items():
            limit = max_steps(**fixed)
            factory = _make_factory(make_level, fixed, limit, see_through_walls)
            register("environment", name, time_limit=limit)(factory)
        return make_level

    return decorate


def _make_factory(
    make_level: Callable[..., Level],
    fixed: Mapping[str, Any],
    limit: int,
    is_open: bool,
) -> Callable[..., Core]:
    """The factory of a level; `limit` and `is_open` are defaults of its options."""

    def level(
        *,
        max_steps: Positive = float(limit),
        agent_view_size: ViewSize = 7,
        see_through_walls: bool = is_open,
    ) -> Core:
        options = max_steps, agent_view_size, see_through_walls
        return level_environment(make_level(**fixed), *options)

    level.__name__ = make_level.__name__
    level.__module__ = make_level.__module__
    level.__doc__ = f"{(make_level.__doc__ or '').rstrip()}{_ENDING}"
    return level


@register_levels(
    {
        "MiniGrid-Empty-5x5-v0": {"size": 5, "random_start": False},
        "MiniGrid-Empty-6x6-v0": {"size": 6, "random_start": False},
        "MiniGrid-Empty-8x8-v0": {"size": 8, "random_start": False},
        "MiniGrid-Empty-16x16-v0": {"size": 16, "random_start": False},
        "MiniGrid-Empty-Random-5x5-v0": {"size": 5, "random_start": True},
        "MiniGrid-Empty-Random-6x6-v0": {"size": 6, "random_start": True},
    },
    max_steps=lambda size, random_start: 4 * size**2,
    see_through_walls=True,
)
def empty(size: int, random_start: bool) -> Level:
    """Walks through an empty room: reward 1 − 0.9 t / max_steps for reaching the goal.

    The goal is the lower right corner. The agent starts in the upper left corner and
    looks to the right; in the levels `Random` its cell and direction are random.
    """
    room = cells.room(size, size)
    room[-2, -2] = cells.GOAL_CELL
    inside = size - 2  # cells per side

    def begin(uniform: Array) -> Start:
        if not random_start:
            return Start(jnp.asarray(room), jnp.array([1, 1], jnp.int32), 0)
        # All cells but the last, which is the goal.
        index = (uniform[0] * (inside**2 - 1)).astype(jnp.int32)
        position = 1 + jnp.stack([index // inside, index % inside])
        return Start(jnp.asarray(room), position, (uniform[1] * 4).astype(jnp.int32))

    return Level(2 if random_start else 1, begin, reaches_goal)


@register_levels(
    {f"MiniGrid-DoorKey-{n}x{n}-v0": {"size": n} for n in (5, 6, 8, 16)},
    max_steps=lambda size: 10 * size**2,
)
def door_key(size: int) -> Level:
    """Opens a door with a key: reward 1 − 0.9 t / max_steps for reaching the goal.

    A wall divides the room. The door in it is locked, the key is on the left with the
    agent, and the goal is the lower right corner. The wall, the door, the key, and the
    agent's cell and direction are random.
    """
    room = cells.room(size, size)
    room[-2, -2] = cells.GOAL_CELL
    column, row = np.mgrid[:size, :size]
    inside = size - 2  # rows without walls

    def begin(uniform: Array) -> Start:
        wall_x = 2 + (uniform[0] * (size - 4)).astype(jnp.int32)
        door_y = 1 + (uniform[1] * (size - 3)).astype(jnp.int32)
        places = (wall_x - 1) * inside  # left of the wall
        agent = (uniform[2] * places).astype(jnp.int32)
        key = (uniform[3] * (places - 1)).astype(jnp.int32)
        key += key >= agent
        key_x, key_y = 1 + key // inside, 1 + key % inside
        door = cells.pack_cell(cells.LOCKED_DOOR, cells.YELLOW)
        wall = jnp.where(row == door_y, door, cells.WALL_CELL)
        grid = jnp.where(column == wall_x, wall, room)
        is_key = (column == key_x) & (row == key_y)
        grid = jnp.where(is_key, cells.pack_cell(cells.KEY, cells.YELLOW), grid)
        position = 1 + jnp.stack([agent // inside, agent % inside])
        return Start(grid, position, (uniform[4] * 4).astype(jnp.int32))

    return Level(5, begin, reaches_goal)


class Ends(NamedTuple):
    """The cells beside the two objects at the end of the hallway."""

    x: Array  # int32: the column of both
    success_y: Array  # int32: the row of the cell beside the equal object
    failure_y: Array  # int32


@register_levels(
    {
        **{
            f"MiniGrid-MemoryS{n}-v0": {"size": n, "random_length": False}
            for n in (7, 9, 11, 13)
        },
        **{
            f"MiniGrid-MemoryS{n}Random-v0": {"size": n, "random_length": True}
            for n in (13, 17)
        },
    },
    max_steps=lambda size, random_length: 5 * size**2,
)
def memory(size: int, random_length: bool) -> Level:
    """Remembers an object: reward 1 − 0.9 t / max_steps for walking to an equal one.

    A key or a ball lies in the room at the left end of a hallway, and both lie at the
    right end, above and below. The episode terminates beside either: with a reward
    beside the object that equals the first, without beside the other. The agent starts
    in a random cell of the room or hallway and looks to the right; in the levels
    `Random` the length of the hallway is random. The task needs memory: a recurrent
    network. The actions 3 to 6 have no effect.
    """
    room, middle = _room(size), size // 2
    column, row = np.mgrid[:size, :size]
    objects = cells.pack_cell(np.array([cells.KEY, cells.BALL]), cells.GREEN)

    def begin(uniform: Array) -> Start:
        end = jnp.int32(size - 3)  # the column where the hallway ends
        if random_length:
            end = 4 + (uniform[0] * (size - 6)).astype(jnp.int32)
        x = 1 + (uniform[1] * end).astype(jnp.int32)
        first, upper = (uniform[2:4] * 2).astype(jnp.int32)
        is_beside_hallway = (np.abs(row - middle) == 1) & (column > 4)
        is_wall = is_beside_hallway & (column < end)
        is_wall |= (column == end) & (row != middle)
        is_wall |= column == end + 2
        grid = jnp.where(is_wall, cells.WALL_CELL, room)
        for there, index in (
            ((column == 1) & (row == middle - 1), first),
            ((column == end + 1) & (row == middle - 2), upper),
            ((column == end + 1) & (row == middle + 2), 1 - upper),
        ):
            grid = jnp.where(there, objects[index], grid)
        success_y = middle + jnp.where(first == upper, -1, 1)
        task = Ends(end + 1, success_y, 2 * middle - success_y)
        return Start(grid, jnp.stack([x, jnp.int32(middle)]), 0, task)

    def judge(
        state: MiniGridState, action: Array, entered: Array
    ) -> tuple[Array, Array]:
        x, y = state.position
        success = (x == state.task.x) & (y == state.task.success_y)
        return success, success | (x == state.task.x) & (y == state.task.failure_y)

    return Level(4, begin, judge, can_pick_up=False)


def _room(size: int) -> np.ndarray:
    """The parts of the map that do not depend on the length of the hallway."""
    middle = size // 2
    grid = cells.room(size, size)
    grid[1:5, [middle - 2, middle + 2]] = cells.WALL_CELL
    grid[4, [middle - 1, middle + 1]] = cells.WALL_CELL
    return grid
