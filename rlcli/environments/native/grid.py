"""Grid worlds: FourRooms, GridWorld and MetaMaze, and their maps."""

import functools
from collections.abc import Collection, Mapping
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.environments.native.toy_text import tabular
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, Core, Key, Probability

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns: up, right, down, left
WALL, FLOOR = "#56616f", "#f4f2ee"


def successor_cells(free: np.ndarray) -> np.ndarray:
    """The cell that each move leads to, int32 `[cells, 4]`; walls and edges block."""
    rows, columns = free.shape
    successors = tabular.grid_moves(rows, columns, MOVES)
    cells = np.arange(free.size)[:, None]
    return np.where(free.ravel()[successors], successors, cells).astype(np.int32)


def free_cells(free: np.ndarray) -> np.ndarray:
    """The indices of the free cells, int32, in order."""
    return np.flatnonzero(free).astype(np.int32)


def option_cells(
    free: np.ndarray, position: tuple[int, int] | None, name: str, excluded: int = -1
) -> np.ndarray:
    """The candidates for an option: `position` itself, or for None all free cells."""
    if position is None:
        cells = free_cells(free)
        return cells[cells != excluded]
    row, column = position
    inside = 0 <= row < free.shape[0] and 0 <= column < free.shape[1]
    number = row * free.shape[1] + column
    if not inside or not free[row, column] or number == excluded:
        raise RlcliError(
            f"`{name}` must be a free cell, but [{row}, {column}] is not",
            "a cell is [row, column], counted from 0 at the upper left",
        )
    return np.array([number], np.int32)


def choose_other_cell(uniform: Array, cells: np.ndarray, excluded: Array) -> Array:
    """Maps a number in [0, 1) to one of the cells except `excluded`, uniformly.

    Args:
        cells: in increasing order; `excluded` need not be among them.
    """
    is_listed = jnp.any(cells == excluded)
    index = (uniform * (len(cells) - is_listed)).astype(jnp.int32)
    rank = jnp.sum(cells < excluded)
    return jnp.asarray(cells)[index + (is_listed & (index >= rank))]


def draw_map(
    free: np.ndarray,
    walker: int,
    *,
    flags: Collection[int] = (),
    tints: Mapping[int, str] | None = None,
    cell: int = 32,
) -> np.ndarray:
    """Draws the map from above, uint8 `[cell · rows, cell · columns, 3]`.

    Args:
        walker: the cell of the agent.
        flags: the cells with a flag, such as goals.
        tints: the colours of cells that differ from the default.
        cell: the width of a cell, in pixels.
    """
    rows, columns = free.shape
    canvas = drawing.Canvas(columns * cell, rows * cell, "#dcd8d0")
    tints = tints or {}

    def corner(number: int) -> drawing.Point:
        return number % columns * cell, number // columns * cell

    for number, is_free in enumerate(free.ravel()):
        left, top = corner(number)
        if is_free:
            fill = tints.get(number, FLOOR)
            canvas.box((left + 1, top + 1), cell - 2, cell - 2, fill, radius=cell / 12)
        else:
            canvas.box((left, top), cell, cell, tints.get(number, WALL))
    for number in flags:
        left, top = corner(number)
        # An agent at the flag is drawn beside it, so that both are visible.
        foot = 0.56 if number == walker else 0.4
        canvas.flag((left + foot * cell, top + 0.86 * cell), 0.7 * cell)
    left, top = corner(walker)
    centre = (left + (0.3 if walker in flags else 0.5) * cell, top + cell / 2)
    canvas.walker(centre, cell, drawing.RED)
    return canvas.pixels()


ROOMS = (
    *("#############", "#     #     #", "#     #     #", "#           #"),
    *("#     #     #", "#     #     #", "## ####     #", "#     ### ###"),
    *("#     #     #", "#     #     #", "#           #", "#     #     #"),
    "#############",
)
ROOMS_FREE = np.array([[letter == " " for letter in row] for row in ROOMS])
ROOMS_SIZE = len(ROOMS)


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
    successors = jnp.asarray(successor_cells(ROOMS_FREE).ravel())
    excluded = -1 if start is None else start[0] * ROOMS_SIZE + start[1]
    goals = option_cells(ROOMS_FREE, goal, "goal", excluded)
    starts = option_cells(ROOMS_FREE, start, "start")

    def observe(state: FourRoomsState) -> Array:
        if visual:
            cells = np.arange(ROOMS_FREE.size)
            layers = (~ROOMS_FREE.ravel(), cells == state.cell, cells == state.goal)
            return jnp.stack(layers, axis=-1).reshape(ROOMS_SIZE, ROOMS_SIZE, 3)
        both_cells = jnp.stack(state)
        return jnp.stack(
            [both_cells // ROOMS_SIZE, both_cells % ROOMS_SIZE], axis=-1
        ).ravel()

    def begin(key: Key) -> FourRoomsState:
        uniform = jax.random.uniform(key, (2,))
        goal_cell = tabular.choose_uniformly(uniform[0], goals)
        return FourRoomsState(
            choose_other_cell(uniform[1], starts, goal_cell), goal_cell
        )

    def draw(key: Key) -> Array:
        fails, direction = jax.random.uniform(key, (2,))
        return jnp.where(
            fails < fail_probability, 1 + (3 * direction).astype(jnp.int32), 0
        )

    def step(state: FourRoomsState, action: Array, noise: Array) -> tuple:
        state = state._replace(cell=successors[state.cell * 4 + (action + noise) % 4])
        at_goal = state.cell == state.goal
        return state, at_goal, at_goal

    def render(state: FourRoomsState) -> np.ndarray:
        return draw_map(ROOMS_FREE, int(state.cell), flags=[int(state.goal)])

    places = gymnasium.spaces.Box(0, ROOMS_SIZE - 1, (4,), np.int32)
    observation = spaces.boolean_box(ROOMS_SIZE, ROOMS_SIZE, 3) if visual else places
    return native_core(begin, step, observe, observation, 4, render=render, draw=draw)


TEXTBOOK = ("...G", ".#.T", "S...")  # Russell and Norvig's world of 4 x 3
STEP, GOAL, TRAP = 1, 2, 3  # indices of rewards; index 0 is a reward of 0


@register("environment", "GridWorld-v0", time_limit=100)
def grid_world(
    *,
    layout: tuple[str, ...] = TEXTBOOK,
    success_rate: Probability = 0.8,
    step_reward: float = -0.04,
    goal_reward: float = 1.0,
    trap_reward: float = -1.0,
) -> Core:
    """Walks over a map to a goal and avoids traps; goals and traps terminate.

    Observation: int32, the index of the cell in row-major order, walls included.
    Actions: 0 up, 1 right, 2 down, 3 left; walls and edges block. A move that fails
    goes to the right or left of its direction, with equal probability. The default map
    is that of (Russell & Norvig, Artificial Intelligence: A Modern Approach,
    https://aima.cs.berkeley.edu/), where the value of the start is 0.705 for γ = 1.

    Args:
        layout: the rows of the map, with the letters `.` (floor), `#` (wall), S
            (start), G (goal) and T (trap). An episode begins in a random S, or without
            any S on a random floor cell.
        success_rate: the probability that a move goes in its direction.
        step_reward: the reward of every step.
        goal_reward: the additional reward of a step into a goal.
        trap_reward: the additional reward of a step into a trap.
    """
    letters = tabular.parse_map(layout, ".#SGT", TEXTBOOK)
    starts, world = _parse_layout(letters)
    rewards = (0.0, step_reward, step_reward + goal_reward, step_reward + trap_reward)
    draw = functools.partial(_draw_world, letters)
    return tabular.tabular_environment(world, rewards, starts, draw, success_rate)


def _parse_layout(letters: np.ndarray) -> tuple[np.ndarray, tabular.World]:
    """The initial cells and the transitions of a map."""
    flat = letters.ravel()
    starts = np.flatnonzero(flat == ("S" if "S" in flat else ".")).astype(np.int32)
    if not len(starts):
        hint = "mark a cell with S; without S, episodes begin on a random `.`"
        raise RlcliError("this map has no cell to start in", hint)
    worth = np.select([flat == "G", flat == "T"], [GOAL, TRAP], STEP)
    successors = successor_cells(letters != "#")
    return starts, tabular.slippery_world(successors, worth, np.isin(flat, ["G", "T"]))


def _draw_world(letters: np.ndarray, cell: int) -> np.ndarray:
    """Draws the map from above, uint8, with a legend; large maps have smaller cells."""
    flat = letters.ravel()
    kinds = {
        "start": ("S", "#e3e9f3"),
        "goal": ("G", "#dcecdf"),
        "trap": ("T", "#e9b4ae"),
    }
    legend_kinds = {name: kind for name, kind in kinds.items() if kind[0] in flat}
    tints = {
        int(number): colour
        for letter, colour in legend_kinds.values()
        for number in np.flatnonzero(flat == letter)
    }
    side = min(100, max(20, 640 // max(letters.shape)))
    goals = np.flatnonzero(flat == "G").tolist()
    world = draw_map(letters != "#", cell, flags=goals, tints=tints, cell=side)
    legend = drawing.Canvas(world.shape[1], 40)
    legend.legend(
        (12, 12), {name: colour for name, (_, colour) in legend_kinds.items()}
    )
    return np.concatenate([world, legend.pixels()])


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
    width, cells = size + 2 * edge, free_cells(free)
    middle = jnp.asarray(free.size // 2, np.int32)
    successors = jnp.asarray(successor_cells(free).ravel())
    walls = jnp.asarray(~free)

    def observe(state: MetaMazeState) -> Array:
        corner = (state.cell // width - edge, state.cell % width - edge)
        return jax.lax.dynamic_slice(walls, corner, (view, view))

    def begin(key: Key) -> MetaMazeState:
        goal = choose_other_cell(jax.random.uniform(key), cells, middle)
        return MetaMazeState(middle, goal)

    def step(state: MetaMazeState, action: Array, noise: Array) -> tuple:
        cell = successors[state.cell * 4 + action]
        at_goal = cell == state.goal
        reward = jnp.where(at_goal, goal_reward, 0.0)
        reward += jnp.where(cell == state.cell, wall_reward, 0.0)
        cell = jnp.where(at_goal, choose_other_cell(noise, cells, state.goal), cell)
        return state._replace(cell=cell), reward, jnp.asarray(False)

    def render(state: MetaMazeState) -> np.ndarray:
        return _draw_maze(free, int(state.cell), int(state.goal), edge)

    seen = spaces.boolean_box(view, view)
    return native_core(
        begin, step, observe, seen, 4, render=render, draw=jax.random.uniform
    )


def maze_layout(size: int, edge: int) -> np.ndarray:
    """A mask of the free cells of a maze, with outer walls `edge` cells thick."""
    odd = np.arange(size) % 2 == 1
    inside = ~(odd[:, None] & odd)
    inside[size // 2, size // 2] = True  # the initial cell is free
    return np.pad(inside, edge)


def _draw_maze(free: np.ndarray, cell: int, goal: int, edge: int) -> np.ndarray:
    """Draws the maze from above, uint8 with a legend; the observed part is lighter."""
    width, side = len(free), 32
    row, column = divmod(cell, width)
    near = range(-edge, edge + 1)
    visible_cells = [
        (row + down) * width + column + right for down in near for right in near
    ]
    tints = {n: "#fdf3cf" if free.flat[n] else "#8a93a0" for n in visible_cells}
    maze = draw_map(free, cell, flags=[goal], tints=tints, cell=side)
    legend = drawing.Canvas(maze.shape[1], 40)
    legend.legend((12, 12), {"in view": "#fdf3cf", "reward": drawing.GREEN})
    return np.concatenate([maze, legend.pixels()])
