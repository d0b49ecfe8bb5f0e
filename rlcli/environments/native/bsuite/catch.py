"""Catch: move a paddle below a falling ball."""

from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli.environments import drawing
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, TimeStep


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

    def reset(key: Key) -> tuple[CatchState, Array]:
        x = (jax.random.uniform(key) * columns).astype(jnp.int32)
        state = CatchState(x, jnp.int32(0), jnp.int32(columns // 2))
        return state, observe(state)

    def step(
        state: CatchState, action: Array, noise: tuple[()]
    ) -> tuple[CatchState, TimeStep]:
        del noise  # only the initial column of the ball is random
        paddle = jnp.clip(state.paddle + action - 1, 0, columns - 1)
        state = CatchState(state.x, state.y + 1, paddle)
        down = state.y == lowest
        worth = jnp.where(state.paddle == state.x, 1.0, -1.0)
        info = {"regret": jnp.where(down, 1.0 - worth, 0.0)}
        reward = jnp.where(down, worth, 0.0)
        return state, make_timestep(observe(state), reward, down, info)

    return Core(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(0.0, 1.0, (rows, columns), np.float32),
        action=gymnasium.spaces.Discrete(3),
        render=lambda state: _draw(rows, columns, *(int(value) for value in state)),
        draw=lambda key: (),
    )


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
