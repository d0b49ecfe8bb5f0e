"""MetaMaze: find what is hidden in a maze, and then find it again and again."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.grid import maps
from rlcli.environments.native.timesteps import make_timestep
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, Environment, Key, TimeStep


class MetaMazeState(NamedTuple):
    """Where one is, and where the reward is hidden."""

    cell: Array  # int32: row · width + column, of the maze with the walls around it
    goal: Array  # int32, likewise


@register("environment", "MetaMaze-v0", time_limit=200)
def meta_maze(
    *,
    size: Annotated[int, Ge(3)] = 9,
    view: Annotated[int, Ge(3)] = 3,
    goal_reward: float = 10.0,
    wall_reward: float = 0.0,
) -> Environment:
    """Finds a hidden reward, again and again: who finds it is put somewhere else.

    Every other cell of every other row is a wall. An episode begins in the middle. The
    reward stays where it is for an episode, in any free cell but the middle; it is not
    seen. Who comes upon it gets it, and is put into any other free cell. Nothing
    terminates. So one has to remember: wrap it in `previous`, which shows action and
    reward, and give the network a memory.
    Observation: bool `[view, view]`: the walls around one, in rows and columns.
    Actions: 0 up, 1 right, 2 down, 3 left. From (Miconi et al., 2018,
    https://arxiv.org/abs/1804.02464), whose episodes have 200 steps.

    Args:
        size: cells along a side, without the walls around; odd.
        view: how many cells wide one sees; odd.
        goal_reward: for coming upon what is hidden.
        wall_reward: for running against a wall, where one stays.
    """
    for name, value in (("size", size), ("view", view)):
        if value % 2 == 0:
            raise RlcliError(
                f"`{name}` of MetaMaze-v0 is to be odd, and {value} is not"
            )
    edge = view // 2
    free = maze_layout(size, edge)
    width, cells = size + 2 * edge, maps.free_cells(free)
    middle = np.int32(free.size // 2)
    successors = jnp.asarray(maps.successor_cells(free).ravel())
    walls = jnp.asarray(~free)

    def observe(cell: Array) -> Array:
        corner = (cell // width - edge, cell % width - edge)
        return jax.lax.dynamic_slice(walls, corner, (view, view))

    def reset(key: Key) -> tuple[MetaMazeState, Array]:
        goal = maps.choose_other_cell(jax.random.uniform(key), cells, middle)
        return MetaMazeState(jnp.asarray(middle), goal), observe(middle)

    def step(
        state: MetaMazeState, action: Array, noise: Array
    ) -> tuple[MetaMazeState, TimeStep]:
        cell = successors[state.cell * 4 + action]
        at_goal = cell == state.goal
        reward = jnp.where(at_goal, goal_reward, 0.0)
        reward += jnp.where(cell == state.cell, wall_reward, 0.0)
        cell = jnp.where(
            at_goal, maps.choose_other_cell(noise, cells, state.goal), cell
        )
        timestep = make_timestep(observe(cell), reward, jnp.asarray(False))
        return state._replace(cell=cell), timestep

    def render(state: MetaMazeState) -> np.ndarray:
        return _draw(free, int(state.cell), int(state.goal), edge)

    return Environment(
        reset=reset,
        step=step,
        observation=spaces.boolean_box(view, view),
        action=gymnasium.spaces.Discrete(4),
        render=render,
        draw=jax.random.uniform,
    )


def maze_layout(size: int, edge: int) -> np.ndarray:
    """Which cells of a maze are free, its outer walls `edge` cells thick."""
    odd = np.arange(size) % 2 == 1
    inside = ~(odd[:, None] & odd)
    inside[size // 2, size // 2] = True  # where one begins is no wall
    return np.pad(inside, edge)


def _draw(free: np.ndarray, cell: int, goal: int, edge: int) -> np.ndarray:
    """The maze from above, uint8 with a legend: what is seen of it is lighter."""
    width, side = len(free), 32
    row, column = divmod(cell, width)
    near = range(-edge, edge + 1)
    visible_cells = [
        (row + down) * width + column + right for down in near for right in near
    ]
    tints = {n: "#fdf3cf" if free.flat[n] else "#8a93a0" for n in visible_cells}
    maze = maps.draw_map(free, cell, flags=[goal], tints=tints, cell=side)
    legend = drawing.Canvas(maze.shape[1], 40)
    legend.legend((12, 12), {"in view": "#fdf3cf", "reward": drawing.GREEN})
    return np.concatenate([maze, legend.pixels()])
