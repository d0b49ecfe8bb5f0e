"""FourRooms: four rooms connected by doors, with a goal in one of them."""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.environments.native.grid import maps
from rlcli.environments.native.timesteps import make_timestep
from rlcli.environments.native.toy_text import tabular
from rlcli.registry import register
from rlcli.types import Array, Core, Key, Probability, TimeStep

ROWS = (
    *("#############", "#     #     #", "#     #     #", "#           #"),
    *("#     #     #", "#     #     #", "## ####     #", "#     ### ###"),
    *("#     #     #", "#     #     #", "#           #", "#     #     #"),
    "#############",
)
FREE = np.array([[letter == " " for letter in row] for row in ROWS])
SIZE = len(ROWS)


class FourRoomsState(NamedTuple):
    """The cells of the agent and of the goal."""

    cell: Array  # int32: row · 13 + column
    goal: Array  # int32, likewise


@register("environment", "FourRooms-v0", time_limit=500)
def four_rooms(
    *,
    fail_probability: Probability = 1 / 3,
    start: tuple[int, int] | None = (4, 1),
    goal: tuple[int, int] | None = (8, 9),
    visual: bool = False,
) -> Core:
    """Walks from room to room: reward 1 for reaching the goal, which terminates.

    Observation: int32 `[4]`: the row and column of the agent, and those of the goal.
    With `visual`: bool `[13, 13, 3]`: row, column, and channel: wall, agent, goal.
    Actions: 0 up, 1 right, 2 down, 3 left; walls block. A move that fails goes in one
    of the three other directions, uniformly. From (Sutton, Precup & Singh, 1999,
    https://doi.org/10.1016/S0004-3702(99)00052-1).

    Args:
        fail_probability: the probability that a move fails.
        start: the initial row and column; null: random in each episode.
        goal: the row and column of the goal; null: random in each episode. A random
            start and a random goal are never the same cell.
        visual: whether to observe the map from above.
    """
    successors = jnp.asarray(maps.successor_cells(FREE).ravel())
    excluded = -1 if start is None else start[0] * SIZE + start[1]
    goals = maps.option_cells(FREE, goal, "goal", excluded)
    starts = maps.option_cells(FREE, start, "start")

    def observe(state: FourRoomsState) -> Array:
        if visual:
            cells = np.arange(FREE.size)
            layers = (~FREE.ravel(), cells == state.cell, cells == state.goal)
            return jnp.stack(layers, axis=-1).reshape(SIZE, SIZE, 3)
        both_cells = jnp.stack(state)
        return jnp.stack([both_cells // SIZE, both_cells % SIZE], axis=-1).ravel()

    def reset(key: Key) -> tuple[FourRoomsState, Array]:
        uniform = jax.random.uniform(key, (2,))
        goal_cell = tabular.choose_uniformly(uniform[0], goals)
        cell = maps.choose_other_cell(uniform[1], starts, goal_cell)
        state = FourRoomsState(cell, goal_cell)
        return state, observe(state)

    def draw(key: Key) -> Array:
        fails, direction = jax.random.uniform(key, (2,))
        return jnp.where(
            fails < fail_probability, 1 + (3 * direction).astype(jnp.int32), 0
        )

    def step(
        state: FourRoomsState, action: Array, noise: Array
    ) -> tuple[FourRoomsState, TimeStep]:
        state = state._replace(cell=successors[state.cell * 4 + (action + noise) % 4])
        at_goal = state.cell == state.goal
        return state, make_timestep(observe(state), at_goal, at_goal)

    def render(state: FourRoomsState) -> np.ndarray:
        return maps.draw_map(FREE, int(state.cell), flags=[int(state.goal)])

    places = gymnasium.spaces.Box(0, SIZE - 1, (4,), np.int32)
    return Core(
        reset=reset,
        step=step,
        observation=spaces.boolean_box(SIZE, SIZE, 3) if visual else places,
        action=gymnasium.spaces.Discrete(4),
        render=render,
        draw=draw,
    )
