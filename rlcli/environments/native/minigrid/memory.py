"""Memory: remember an object, and walk to the equal one at the end of a hallway."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.minigrid import cells
from rlcli.environments.native.minigrid.game import Level, MiniGridState, Start
from rlcli.environments.native.minigrid.levels import register_levels
from rlcli.types import Array


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
    network.
    Observation: a dict of `image`, uint8 `[7, 7, 3]`, and `direction`, int32: 0 right,
    1 down, 2 left, 3 up. The image is the square in front of the agent, which is in the
    middle of its last row: column, row, and channel: object, colour, state. Hidden
    cells are 0. Actions: 0 turn left, 1 turn right, 2 go forward; 3 to 6 have no
    effect. As in MiniGrid (Chevalier-Boisvert et al., 2023,
    https://arxiv.org/abs/2306.13831).
    """
    room, middle = _room(size), size // 2
    column, row = np.mgrid[:size, :size]
    objects = jnp.stack(
        [
            cells.pack_cell(cells.KEY, cells.GREEN),
            cells.pack_cell(cells.BALL, cells.GREEN),
        ]
    )

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
