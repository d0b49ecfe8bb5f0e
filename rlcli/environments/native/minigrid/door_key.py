"""DoorKey: pick up a key, open a door, and walk to the goal behind it."""

import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.minigrid import cells
from rlcli.environments.native.minigrid.game import Level, Start, reaches_goal
from rlcli.environments.native.minigrid.levels import register_levels
from rlcli.types import Array


@register_levels(
    {f"MiniGrid-DoorKey-{n}x{n}-v0": {"size": n} for n in (5, 6, 8, 16)},
    max_steps=lambda size: 10 * size**2,
)
def door_key(size: int) -> Level:
    """Opens a door with a key: reward 1 − 0.9 t / max_steps for reaching the goal.

    A wall divides the room. The door in it is locked, the key is on the left with the
    agent, and the goal is the lower right corner. The wall, the door, the key, and the
    agent's cell and direction are random.
    Observation: a dict of `image`, uint8 `[7, 7, 3]`, and `direction`, int32: 0 right,
    1 down, 2 left, 3 up. The image is the square in front of the agent, which is in the
    middle of its last row: column, row, and channel: object, colour, state. Hidden
    cells are 0. Actions: 0 turn left, 1 turn right, 2 go forward, 3 pick up, 4 drop, 5
    open or close, 6 nothing. As in MiniGrid (Chevalier-Boisvert et al., 2023,
    https://arxiv.org/abs/2306.13831).
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
        wall = jnp.where(
            row == door_y,
            cells.pack_cell(cells.LOCKED_DOOR, cells.YELLOW),
            cells.WALL_CELL,
        )
        grid = jnp.where(column == wall_x, wall, room)
        is_key = (column == key_x) & (row == key_y)
        grid = jnp.where(is_key, cells.pack_cell(cells.KEY, cells.YELLOW), grid)
        position = 1 + jnp.stack([agent // inside, agent % inside])
        return Start(grid, position, (uniform[4] * 4).astype(jnp.int32))

    return Level(5, begin, reaches_goal)
