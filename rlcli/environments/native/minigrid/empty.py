"""Empty: walk through an empty room to the goal in the opposite corner."""

import jax.numpy as jnp

from rlcli.environments.native.minigrid import cells
from rlcli.environments.native.minigrid.game import Level, Start, reaches_goal
from rlcli.environments.native.minigrid.levels import register_levels
from rlcli.types import Array


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
    Observation: a dict of `image`, uint8 `[7, 7, 3]`, and `direction`, int32: 0 right,
    1 down, 2 left, 3 up. The image is the square in front of the agent, which is in the
    middle of its last row: column, row, and channel: object, colour, state. Actions: 0
    turn left, 1 turn right, 2 go forward, 3 pick up, 4 drop, 5 open or close, 6
    nothing. As in MiniGrid (Chevalier-Boisvert et al., 2023,
    https://arxiv.org/abs/2306.13831).
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
