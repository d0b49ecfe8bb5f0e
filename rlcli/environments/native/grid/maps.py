"""Grid maps: parsing, moves between cells, and drawing."""

from collections.abc import Collection, Mapping

import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.toy_text import tabular
from rlcli.errors import RlcliError
from rlcli.types import Array

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns: up, right, down, left
WALL, FLOOR = "#56616f", "#f4f2ee"


def parse_map(
    rows: tuple[str, ...], letters: str, example: tuple[str, ...]
) -> np.ndarray:
    """Parses a map into its letters, `[rows, columns]`, or raises an `RlcliError`."""
    hint = f"a map is a list of rows, such as {list(example)}"
    unknown_letters = sorted(set("".join(rows)) - set(letters))
    if unknown_letters:
        allowed_letters = ", ".join(f"`{letter}`" for letter in letters)
        raise RlcliError(
            f"a map may contain {allowed_letters}, but this one has {unknown_letters}",
            hint,
        )
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise RlcliError(
            "the rows of a map must have equal length, but these differ", hint
        )
    return np.array([list(row) for row in rows])


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
