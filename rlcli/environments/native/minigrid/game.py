"""MiniGrid engine: actions, observations and rewards, shared by all levels."""

import functools
from collections.abc import Callable
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Le

from rlcli.environments.native.core import native_core
from rlcli.environments.native.minigrid import cells, view
from rlcli.environments.native.minigrid.pictures import draw_grid
from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree, Core, Key
from rlcli.xla.fusion_barrier import materialize

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)

ViewSize = Annotated[int, Ge(3), Le(31)]  # a row of the view is the bits of an int32


class Start(NamedTuple):
    """The initial state of an episode."""

    grid: Array  # uint8 [width, height], packed cells: column and row
    position: Array  # int32 [2]: x and y
    direction: Array | int  # 0 right, 1 down, 2 left, 3 up
    task: ArrayTree = ()  # what the rules of the level need, fixed during an episode


class MiniGridState(NamedTuple):
    """The state of a level."""

    grid: Array  # uint8 [width, height], packed cells
    position: Array  # int32 [2]
    direction: Array  # int32
    carrying: Array  # uint8: a packed cell, empty if the agent carries nothing
    steps: Array  # int32: steps since the start of the episode
    task: ArrayTree


class Level(NamedTuple):
    """The rules of a level."""

    draws: int  # the number of random numbers of a start
    begin: Callable[[Array], Start]  # uniform numbers [draws] -> initial state
    # (state after the step, action, object entered) -> success, terminated
    judge: Callable[[MiniGridState, Array, Array], tuple[Array, Array]]
    # task -> the colour that the mission names; None: the mission is constant
    mission_colour: Callable[[ArrayTree], Array] | None = None
    can_pick_up: bool = True


def level_environment(
    level: Level, max_steps: float, agent_view_size: ViewSize, see_through_walls: bool
) -> Core:
    """Builds the environment of a level."""
    if agent_view_size % 2 == 0:
        raise RlcliError(
            f"`agent_view_size` must be odd, but it is {agent_view_size}",
            "the agent is in the middle of the last row of its view; the default is 7",
        )

    def observe(state: MiniGridState) -> dict[str, Array]:
        obs = {
            "image": observe_cells(state, agent_view_size, see_through_walls),
            "direction": state.direction,
        }
        if level.mission_colour is not None:
            obs["mission"] = level.mission_colour(state.task)
        return obs

    def begin(key: Key) -> MiniGridState:
        # Without the barrier, XLA repeats the hash for each cell of the grid.
        start = level.begin(materialize(jax.random.uniform(key, (level.draws,))))
        direction = jnp.asarray(start.direction, jnp.int32)
        carrying, steps = jnp.asarray(cells.EMPTY_CELL), jnp.int32(0)
        state = (start.grid, start.position, direction, carrying, steps, start.task)
        return materialize(MiniGridState(*state))

    def step(state: MiniGridState, action: Array) -> tuple:
        if not level.can_pick_up:
            action = jnp.where(action == PICK_UP, TOGGLE, action)
        state, entered = apply_action(state, action)
        success, terminated = level.judge(state, action, entered)
        reward = jnp.where(success, 1 - 0.9 * state.steps / max_steps, 0.0)
        return materialize(state), reward, terminated

    def render(state: MiniGridState) -> np.ndarray:
        return draw_grid(
            np.asarray(state.grid),
            np.asarray(state.position),
            int(state.direction),
            np.asarray(state.carrying),
            np.asarray(visible_part(state, agent_view_size, see_through_walls)),
        )

    shape = agent_view_size, agent_view_size, 3
    most = np.broadcast_to(np.array(cells.MAX_CHANNELS, np.uint8), shape)
    members = {
        "image": gymnasium.spaces.Box(np.uint8(0), most, dtype=np.uint8),
        "direction": gymnasium.spaces.Discrete(4, dtype=np.int32),
    }
    if level.mission_colour is not None:
        members["mission"] = gymnasium.spaces.Discrete(cells.COLOURS, dtype=np.int32)
    observation = gymnasium.spaces.Dict(members)
    return native_core(begin, step, observe, observation, 7, render=render)


def apply_action(state: MiniGridState, action: Array) -> tuple[MiniGridState, Array]:
    """Performs an action; returns the state and the object that the agent walks onto.

    That is 0 where the agent does not move.
    """
    dx, dy = view.unit_vector(state.direction)
    front = state.position + jnp.stack([dx, dy])
    index = front[0] * state.grid.shape[1] + front[1]
    cell = state.grid.ravel()[index]
    kind, carried = cells.kind_of(cell), cells.kind_of(state.carrying)

    is_free = (kind == cells.EMPTY) | (kind == cells.OPEN_DOOR) | (kind == cells.GOAL)
    moves = (action == FORWARD) & is_free
    is_portable = (kind == cells.KEY) | (kind == cells.BALL)
    picks_up = (action == PICK_UP) & is_portable & (carried == cells.EMPTY)
    drops = (action == DROP) & (kind == cells.EMPTY) & (carried != cells.EMPTY)

    new_cell = jnp.where(action == TOGGLE, _toggle(cell, state.carrying), cell)
    new_cell = jnp.where(picks_up, cells.EMPTY_CELL, new_cell)
    new_cell = jnp.where(drops, state.carrying, new_cell)
    carrying = jnp.where(picks_up, cell, state.carrying)
    turn = (action == RIGHT).astype(jnp.int32) - (action == LEFT)
    new_state = state._replace(
        grid=_write(state.grid, index, new_cell),
        position=jnp.where(moves, front, state.position),
        direction=(state.direction + turn) & 3,
        carrying=jnp.where(drops, cells.EMPTY_CELL, carrying),
        steps=state.steps + 1,
    )
    return new_state, jnp.where(moves, kind, 0)


def reaches_goal(
    state: MiniGridState, action: Array, entered: Array
) -> tuple[Array, Array]:
    """The `judge` of levels whose task is to walk onto the goal."""
    return entered == cells.GOAL, entered == cells.GOAL


def observe_cells(state: MiniGridState, size: int, see_through_walls: bool) -> Array:
    """The image that the agent observes, uint8 `[size, size, 3]`."""
    seen = view.view_cells(state.grid, state.position, state.direction, size)
    seen = materialize(seen)
    visible = _visible(seen, see_through_walls)
    where = np.zeros((size, size), bool)
    where[size // 2, size - 1] = True  # the agent, whose cell shows what it carries
    encoded = cells.channels(jnp.where(where, state.carrying, seen))
    return jnp.where(visible[..., None], encoded, 0).astype(jnp.uint8)


# Compiled separately, because rendering calls it outside of compiled programs.
@functools.partial(jax.jit, static_argnames=("size", "see_through_walls"))
def visible_part(state: MiniGridState, size: int, see_through_walls: bool) -> Array:
    """The cells of the grid that the agent sees, bool `[width, height]`."""
    seen = view.view_cells(state.grid, state.position, state.direction, size)
    x, y = view.view_coordinates(state.position, state.direction, size)
    lit = jnp.zeros(state.grid.shape, bool)
    is_inside = view.is_inside(state.grid, x, y)
    x = jnp.where(is_inside, x, state.grid.shape[0])  # out of range: not written
    return lit.at[x, y].set(_visible(seen, see_through_walls), mode="drop")


def _visible(seen: Array, see_through_walls: bool) -> Array:
    if see_through_walls:
        return jnp.ones(seen.shape, bool)
    return view.visible_cells(cells.is_transparent(seen))


def _toggle(cell: Array, carrying: Array) -> Array:
    """Opens or closes a door; a locked door opens with a key of its colour."""
    kind, colour = cells.kind_of(cell), cells.colour_of(cell)
    has_key = carrying == cells.pack_cell(cells.KEY, colour)
    opens = (kind == cells.CLOSED_DOOR) | (kind == cells.LOCKED_DOOR) & has_key
    toggled = jnp.where(kind == cells.OPEN_DOOR, cells.CLOSED_DOOR, kind)
    return cells.pack_cell(jnp.where(opens, cells.OPEN_DOOR, toggled), colour)


def _write(grid: Array, index: Array, cell: Array) -> Array:
    """Writes a cell; a select over all cells is faster than a scatter under `vmap`."""
    order = np.arange(grid.size, dtype=np.int32).reshape(grid.shape)
    return jnp.where(order == index, cell, grid)
