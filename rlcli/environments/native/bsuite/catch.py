"""Catch: move a paddle below a falling ball."""

from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key


class CatchState(NamedTuple):
    """The positions of the ball and the paddle."""

    x: Array  # int32: the ball's column
    y: Array  # int32: its row; 0 is the top
    paddle: Array  # int32: its column, in the lowest row


@register("environment", "bsuite/Catch")
def catch(*, rows: Annotated[int, Ge(2)] = 10, columns: Count = 5) -> Core:
    """Catches a falling ball with a paddle: reward 1 if caught, −1 if missed.

    The ball starts in a random column and falls one row per step; the paddle starts in
    the middle. The episode terminates when the ball reaches the lowest row.
    Observation: float32 `[rows, columns]`: 1 for the cells of the ball and the paddle,
    else 0. Actions: 0 left, 1 stay, 2 right. Logged: `regret`, 1 minus the return. From
    bsuite (Osband et al., 2019, https://arxiv.org/abs/1908.03568).
    """
    row, column = np.indices((rows, columns))
    lowest = rows - 1

    def observe(state: CatchState) -> Array:
        ball = (row == state.y) & (column == state.x)
        paddle = (row == lowest) & (column == state.paddle)
        return (ball | paddle).astype(jnp.float32)

    def begin(key: Key) -> CatchState:
        x = (jax.random.uniform(key) * columns).astype(jnp.int32)
        return CatchState(x, jnp.int32(0), jnp.int32(columns // 2))

    def step(state: CatchState, action: Array) -> tuple:
        paddle = jnp.clip(state.paddle + action - 1, 0, columns - 1)
        state = CatchState(state.x, state.y + 1, paddle)
        down = state.y == lowest
        worth = jnp.where(state.paddle == state.x, 1.0, -1.0)
        info = {"regret": jnp.where(down, 1.0 - worth, 0.0)}
        return state, jnp.where(down, worth, 0.0), down, info

    def render(state: CatchState) -> np.ndarray:
        return _draw(rows, columns, *(int(value) for value in state))

    observation = gymnasium.spaces.Box(0.0, 1.0, (rows, columns), np.float32)
    return native_core(begin, step, observe, observation, 3, render=render)


def _draw(rows: int, columns: int, x: int, y: int, paddle: int) -> np.ndarray:
    """Draws the board with ball and paddle, uint8, at most 400 pixels high."""
    cell = max(8, 400 // max(rows, columns))
    canvas = drawing.Canvas(columns * cell, rows * cell, drawing.INK)
    for row, column in np.ndindex(rows, columns):
        corner = (column * cell + 1, row * cell + 1)
        canvas.box(corner, cell - 2, cell - 2, "#293548", radius=cell / 12)
    top = (rows - 0.6) * cell
    corner = (paddle * cell + 2, top)
    canvas.box(corner, cell - 4, 0.3 * cell, drawing.BLUE, radius=cell / 8)
    fill = "#e3b341" if y < rows - 1 else drawing.GREEN if x == paddle else drawing.RED
    canvas.circle(((x + 0.5) * cell, (y + 0.5) * cell), 0.3 * cell, fill)
    return canvas.pixels()
