"""Images of grids, seen from above."""

import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minigrid import cells
from rlcli.types import Array

# In the order of the numbers of colours.
PALETTE = ("#c2413a", "#4d8f5c", "#3b6fb6", "#7c4fb3", "#d8a928", "#6b7280")
WALL, FLOOR, LIT_FLOOR = "#56616f", "#e9e6e0", "#fdf3cf"
LEGEND_HEIGHT = 40


def draw_grid(
    grid: np.ndarray,
    position: np.ndarray,
    direction: int,
    carrying: Array,
    visible: np.ndarray,
) -> np.ndarray:
    """Draws a level: the cells that the agent sees are lighter.

    Below the grid is a legend, with the object that the agent carries.

    Args:
        grid: packed cells `[width, height]`.
        position: the x and y of the agent.
        direction: 0 right, 1 down, 2 left, 3 up.
        carrying: a packed cell.
        visible: whether the agent sees a cell, `[width, height]`.
    """
    width, height = grid.shape
    side = min(64, max(24, 480 // max(width, height)))
    canvas = drawing.Canvas(
        max(width * side, 300), height * side + LEGEND_HEIGHT, drawing.PAPER
    )
    for x, y in np.ndindex(width, height):
        _draw_cell(canvas, grid[x, y], (x * side, y * side), side, bool(visible[x, y]))
    _draw_agent(canvas, position, direction, side)
    top = height * side + 12
    canvas.legend((12, top), {"in view": LIT_FLOOR, "agent": drawing.RED})
    canvas.text((186, top + 7), "carries:", 14, anchor="lm")
    _draw_object(canvas, carrying, (244, top - 6), 28)
    return canvas.pixels()


def _draw_cell(
    canvas: drawing.Canvas,
    cell: Array,
    corner: drawing.Point,
    side: int,
    is_visible: bool,
) -> None:
    left, top = corner
    if cells.kind_of(cell) == cells.WALL:
        canvas.box(corner, side, side, "#7d8896" if is_visible else WALL)
        return
    canvas.box(corner, side, side, "#dcd8d0")
    floor = LIT_FLOOR if is_visible else FLOOR
    canvas.box((left + 1, top + 1), side - 2, side - 2, floor, radius=side / 12)
    _draw_object(canvas, cell, corner, side)


def _draw_object(
    canvas: drawing.Canvas, cell: Array, corner: drawing.Point, side: int
) -> None:
    """Draws what is in a cell, in a square."""
    kind, fill = cells.kind_of(cell), PALETTE[cells.colour_of(cell)]

    def place(x: float, y: float) -> drawing.Point:
        return corner[0] + x * side, corner[1] + y * side

    def box(x: float, y: float, wide: float, high: float, colour: str) -> None:
        canvas.box(place(x, y), wide * side, high * side, colour, radius=side / 20)

    match kind:
        case cells.GOAL:
            canvas.flag(place(0.36, 0.86), 0.7 * side)
        case cells.BALL:
            canvas.circle(place(0.5, 0.5), 0.3 * side, fill)
        case cells.KEY:
            canvas.circle(place(0.5, 0.3), 0.18 * side, fill)
            canvas.circle(place(0.5, 0.3), 0.08 * side, drawing.PAPER)
            box(0.45, 0.42, 0.1, 0.44, fill)
            box(0.5, 0.6, 0.2, 0.08, fill)
            box(0.5, 0.74, 0.2, 0.08, fill)
        case cells.OPEN_DOOR:
            box(0.02, 0.02, 0.12, 0.96, fill)
        case cells.CLOSED_DOOR | cells.LOCKED_DOOR:
            box(0.02, 0.02, 0.96, 0.96, fill)
            box(0.12, 0.12, 0.76, 0.76, drawing.PAPER)
            box(0.18, 0.18, 0.64, 0.64, fill)
            if kind == cells.LOCKED_DOOR:
                box(0.44, 0.4, 0.12, 0.28, drawing.INK)
            else:
                canvas.circle(place(0.7, 0.5), 0.06 * side, drawing.INK)


def _draw_agent(
    canvas: drawing.Canvas, position: np.ndarray, direction: int, side: int
) -> None:
    """Draws a triangle that points in the direction of the agent."""
    centre = (position + 0.5) * side
    ahead = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)][direction]) * side
    across = np.array([-ahead[1], ahead[0]])
    corners = (
        centre + 0.36 * ahead,
        centre - 0.3 * ahead + 0.3 * across,
        centre - 0.3 * ahead - 0.3 * across,
    )
    canvas.polygon([(float(x), float(y)) for x, y in corners], drawing.RED)
