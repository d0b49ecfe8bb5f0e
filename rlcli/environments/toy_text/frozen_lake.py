"""FrozenLake: walk over the ice from the start to the goal, and into no hole."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Environment, Key, TimeStep

SMALL = ("SFFF", "FHFH", "FFFH", "HFFG")  # Gymnasium's 4x4
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # rows and columns: left, down, right, up
CELL = 100  # pixels


class FrozenLakeState(NamedTuple):
    """Where the walker stands."""

    cell: Array  # int32: row · columns + column; the observation


class Lake(NamedTuple):
    """A map, as tables."""

    starts: np.ndarray  # int32[...]: the cells to start from
    ends: np.ndarray  # bool[cells]: holes and goals
    goal: np.ndarray  # bool[cells]
    ahead: np.ndarray  # int32[cells, 4]: where a move leads; out of an end, nowhere


@register("environment", "FrozenLakeNonSlippery-v0", time_limit=20)
def frozen_lake(
    *, lake: tuple[str, ...] = SMALL, slippery: bool = False
) -> Environment:
    """Walks on a frozen lake: 1 for the step onto the goal, else 0.

    Observation: int32, the number of the cell, row by row. Actions: 0 left, 1 down,
    2 right, 3 up; at the edge one stays where one is. The episode terminates in a hole
    or at the goal. The moves are Gymnasium's.

    Args:
        lake: the map's rows, of S (start), F (ice), H (hole) and G (goal).
        slippery: of three moves one goes as intended, two to either side of it.
    """
    starts, ends, goal, ahead = (jnp.asarray(table) for table in _read(lake))

    def reset(key: Key) -> tuple[FrozenLakeState, Array]:
        cell = starts[jax.random.randint(key, (), 0, len(starts))]
        return FrozenLakeState(cell), cell

    def draw(key: Key) -> ArrayTree:
        # To be added to the action: neighbours in its numbers are at right angles.
        return jax.random.randint(key, (), -1, 2, jnp.int32) if slippery else ()

    def step(
        state: FrozenLakeState, action: Array, noise: ArrayTree
    ) -> tuple[FrozenLakeState, TimeStep]:
        direction = (action + noise) % 4 if slippery else action
        cell = ahead[state.cell, direction]
        # Nothing leads from a goal but to itself, and that is worth nothing.
        reward = goal[cell] & (cell != state.cell)
        return FrozenLakeState(cell), TimeStep(
            obs=cell,
            next_obs=cell,
            reward=reward.astype(jnp.float32),
            discount=1.0 - ends[cell].astype(jnp.float32),
            last=ends[cell],
            info={},
        )

    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Discrete(len(ends), dtype=np.int32),
        action=gymnasium.spaces.Discrete(4),
        render=lambda state: _draw(lake, int(state.cell)),
        draw=draw,
    )


def _read(lake: tuple[str, ...]) -> Lake:
    """The tables of a map, or an error that says what is wrong with it."""
    letters = np.array([list(row) for row in _checked(lake)])
    rows, columns = letters.shape
    flat = letters.ravel()
    ends = np.isin(flat, ["G", "H"])
    row, column = np.divmod(np.arange(rows * columns), columns)
    ahead = [
        np.clip(row + down, 0, rows - 1) * columns
        + np.clip(column + right, 0, columns - 1)
        for down, right in MOVES
    ]
    ahead = np.where(ends, np.arange(rows * columns), ahead).T.astype(np.int32)
    return Lake(np.flatnonzero(flat == "S").astype(np.int32), ends, flat == "G", ahead)


def _checked(lake: tuple[str, ...]) -> tuple[str, ...]:
    hint = f"a map is a list of rows, such as {list(SMALL)}"
    unknown = sorted(set("".join(lake)) - set("SFHG"))
    if unknown:
        raise RlcliError(f"a lake has S, F, H and G, but this one has {unknown}", hint)
    if len({len(row) for row in lake}) != 1:
        raise RlcliError("the rows of a lake are of one length, but these differ", hint)
    if "S" not in "".join(lake):
        raise RlcliError("a lake has a start S, but this one has none", hint)
    return lake


def _draw(lake: tuple[str, ...], walker: int) -> np.ndarray:
    """The map from above, `[100 rows, 100 columns, 3]` uint8, with its walker."""
    columns = len(lake[0])
    canvas = drawing.Canvas(columns * CELL, len(lake) * CELL, "#b9d3e3")
    for number, letter in enumerate("".join(lake)):
        _draw_cell(canvas, number % columns * CELL, number // columns * CELL, letter)
    x, y = (walker % columns + 0.5) * CELL, (walker // columns + 0.5) * CELL
    lost = "".join(lake)[walker] == "H"
    _draw_walker(canvas, x, y, drawing.GREY if lost else drawing.RED)
    return canvas.pixels()


def _draw_cell(canvas: drawing.Canvas, left: float, top: float, letter: str) -> None:
    ice = "#f6e3b0" if letter == "G" else "#eaf4fa"
    canvas.box((left + 1, top + 1), CELL - 2, CELL - 2, ice, radius=6)
    if letter == "H":
        centre = (left + 0.54 * CELL, top + 0.54 * CELL)
        canvas.circle(centre, 0.38 * CELL, "#9dbdd1")
        canvas.circle(centre, 0.34 * CELL, "#234863")
    if letter == "G":
        foot, tip = left + 0.64 * CELL, top + 0.16 * CELL
        canvas.line((foot, top + 0.84 * CELL), (foot, tip), 4, drawing.INK)
        flag = [(foot, tip), (foot + 30, tip + 13), (foot, tip + 26)]
        canvas.polygon(flag, drawing.GREEN)
    colour = "#8fb3c9" if letter in "FH" else drawing.INK
    canvas.text((left + 10, top + 8), letter, 15, colour, anchor="la")


def _draw_walker(canvas: drawing.Canvas, x: float, y: float, coat: str) -> None:
    for side in (-9, 9):
        canvas.box((x + side - 6, y + 28), 12, 9, drawing.INK, radius=4)
    canvas.box((x - 19, y - 4), 38, 36, coat, radius=15)
    canvas.circle((x, y - 14), 15, "#f2c9a1")
    canvas.box((x - 16, y - 31), 32, 13, drawing.INK, radius=6)
    for side in (-5, 5):
        canvas.circle((x + side, y - 13), 2, drawing.INK)
