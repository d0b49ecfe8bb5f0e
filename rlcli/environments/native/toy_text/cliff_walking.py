"""CliffWalking: the shortest path runs along a cliff; the safe path is longer."""

import functools

import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.toy_text import tabular
from rlcli.registry import register
from rlcli.types import Core

ROWS, COLUMNS = 4, 12
START, GOAL = 36, 47  # the lower corners; the cliff is between them
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns: up, right, down, left
CELL = 50  # pixels


@register("environment", "CliffWalking-v0")
@register("environment", "CliffWalking-v1")
def cliff_walking(*, slippery: bool = False) -> Core:
    """Walks along a cliff: reward −1 per step, −100 for a fall back to the start.

    Observation: int32, the index of the cell on the 4 x 12 grid, in row-major order;
    the start is 36. Actions: 0 up, 1 right, 2 down, 3 left; edges block. A step onto
    one of the cells 37 … 46 leads to 36. The episode terminates in 47. Example 6.6 of
    (Sutton and Barto, 2018, http://incompleteideas.net/book/the-book-2nd.html), as in
    Gymnasium.

    Args:
        slippery: whether a move goes in its direction or to either side, with
            probability 1/3 each.
    """
    starts, success = np.array([START], np.int32), 1 / 3 if slippery else None
    return tabular.tabular_environment(_world(), (-1.0, -100.0), starts, _draw, success)


@register("environment", "CliffWalkingSlippery-v1")
def cliff_walking_slippery() -> Core:
    """Walks along a slippery cliff: CliffWalking-v1 with `slippery: true`.

    Observation: int32, the index of the cell. Actions: 0 up, 1 right, 2 down, 3 left; a
    move goes in its direction or to either side, with probability 1/3 each. Reward −1
    per step, −100 for falling. The episode terminates in 47. As in Gymnasium.
    """
    return cliff_walking(slippery=True)


@functools.cache
def _world() -> tabular.World:
    successors = tabular.grid_moves(ROWS, COLUMNS, MOVES)[:, tabular.slip_actions(4)]
    falls = (successors > START) & (successors < GOAL)
    return tabular.World(np.where(falls, START, successors), falls, successors == GOAL)


def _draw(walker: int) -> np.ndarray:
    """Draws the cliff from above, `[240, 600, 3]` uint8, with a legend."""
    canvas = drawing.Canvas(COLUMNS * CELL, ROWS * CELL + 40)
    for cell in range(ROWS * COLUMNS):
        top, left = (index * CELL for index in divmod(cell, COLUMNS))
        canvas.box(
            (left + 1, top + 1), CELL - 2, CELL - 2, _cell_colour(cell), radius=4
        )
    canvas.flag((COLUMNS * CELL - 28, ROWS * CELL - 8), 34)
    top, left = ((index + 0.5) * CELL for index in divmod(walker, COLUMNS))
    canvas.walker((left, top), CELL, drawing.RED)
    legend = {"start": START, "path": 0, "cliff": START + 1, "goal": GOAL}
    colours = {name: _cell_colour(cell) for name, cell in legend.items()}
    canvas.legend((14, ROWS * CELL + 13), colours)
    return canvas.pixels()


def _cell_colour(cell: int) -> str:
    if START < cell < GOAL:
        return "#5d4a3d"
    return {START: "#bcd0e8", GOAL: "#f6e3b0"}.get(cell, "#dfe8d5")
