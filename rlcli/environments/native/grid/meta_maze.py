"""MetaMaze: find a hidden reward in a maze, and return to it repeatedly."""

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
from rlcli.types import Array, Core, Key, TimeStep


class MetaMazeState(NamedTuple):
    """The cells of the agent and of the hidden reward."""

    cell: Array  # int32: row · width + column, including the outer walls
    goal: Array  # int32, likewise


@register("environment", "MetaMaze-v0", time_limit=200)
def meta_maze(
    *,
    size: Annotated[int, Ge(3)] = 9,
    view: Annotated[int, Ge(3)] = 3,
    goal_reward: float = 10.0,
    wall_reward: float = 0.0,
) -> Core:
    """Finds a hidden reward repeatedly: reaching it moves the agent to a random cell.

    Every other cell of every other row is a wall. An episode begins in the middle. The
    reward is hidden in a random free cell except the middle, fixed during an episode
    and not observed. An agent that reaches it is rewarded and moved to another random
    free cell. The episode never terminates. The task needs memory: use the wrapper
    `previous`, which adds the last action and reward to the observation, and a
    recurrent network.
    Observation: bool `[view, view]`: the walls around the agent, in rows and columns.
    Actions: 0 up, 1 right, 2 down, 3 left. From (Miconi et al., 2018,
    https://arxiv.org/abs/1804.02464), whose episodes have 200 steps.

    Args:
        size: the number of cells per side, without the outer walls; odd.
        view: the width of the observed square, in cells; odd.
        goal_reward: the reward for reaching the hidden cell.
        wall_reward: the reward for moving into a wall, which blocks the move.
    """
    for name, value in (("size", size), ("view", view)):
        if value % 2 == 0:
            raise RlcliError(f"`{name}` of MetaMaze-v0 must be odd, but it is {value}")
    edge = view // 2
    free = maze_layout(size, edge)
    width, cells = size + 2 * edge, maps.free_cells(free)
    middle = jnp.asarray(free.size // 2, np.int32)
    successors = jnp.asarray(maps.successor_cells(free).ravel())
    walls = jnp.asarray(~free)

    def observe(cell: Array) -> Array:
        corner = (cell // width - edge, cell % width - edge)
        return jax.lax.dynamic_slice(walls, corner, (view, view))

    def reset(key: Key) -> tuple[MetaMazeState, Array]:
        goal = maps.choose_other_cell(jax.random.uniform(key), cells, middle)
        return MetaMazeState(middle, goal), observe(middle)

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

    return Core(
        reset=reset,
        step=step,
        observation=spaces.boolean_box(view, view),
        action=gymnasium.spaces.Discrete(4),
        render=render,
        draw=jax.random.uniform,
    )


def maze_layout(size: int, edge: int) -> np.ndarray:
    """A mask of the free cells of a maze, with outer walls `edge` cells thick."""
    odd = np.arange(size) % 2 == 1
    inside = ~(odd[:, None] & odd)
    inside[size // 2, size // 2] = True  # the initial cell is free
    return np.pad(inside, edge)


def _draw(free: np.ndarray, cell: int, goal: int, edge: int) -> np.ndarray:
    """Draws the maze from above, uint8 with a legend; the observed part is lighter."""
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
