"""Pong: bring a ball past a paddle that follows it."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.timesteps import make_timestep
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, Count, Environment, Key, Probability, TimeStep

UP, DOWN = 1, 2


class PongState(NamedTuple):
    """Paddles and ball, int32; row 0 is the top, column 0 one's own side."""

    own: Array  # the row of the middle of one's own paddle
    their: Array  # that of the opponent's
    row: Array  # where the ball is
    column: Array
    down: Array  # rows that it moves in a step
    right: Array  # columns: 1 or −1
    last_row: Array  # where it was a step ago
    last_column: Array


@register("environment", "Pong-v0", time_limit=1000)
def pong(
    *,
    width: Annotated[int, Ge(8)] = 40,
    height: Annotated[int, Ge(5)] = 30,
    reach: Count = 2,
    max_speed: Count = 3,
    opponent_skill: Probability = 1.0,
    visual: bool = True,
) -> Environment:
    """Plays for one point: 1 if the ball passes the other paddle, −1 if one's own.

    Either terminates. Paddles move by a row, and the ball by a column. It bounces off
    the walls above and below, and off a paddle that is beside it or a column behind.
    There it becomes faster or slower: its rows per step change by
    (its row − the paddle's) / reach, rounded, halves to even. The opponent follows the
    ball; for it cannot move as fast, it can be beaten by the edge of the paddle.
    Observation: bool `[height, width, 3]`: row, column, and what is there: paddle,
    ball, where the ball was. Or without `visual` float32 `[6]`, −1 … 1: the rows of
    one's own paddle, the other one and the ball, its column, and its rows and columns
    per step. Actions: 0 nothing, 1 up, 2 down. An episode begins with the ball in the
    middle column, in any row, on its way to either side. As in gymnax (Lange, 2022,
    https://github.com/RobertTLange/gymnax), but for its missing wall, for its rewards,
    and for beginning always the same.

    Args:
        width: columns of the field.
        height: its rows.
        reach: rows that a paddle has above its middle, and below.
        max_speed: the most rows that the ball moves in a step.
        opponent_skill: how likely the opponent moves, in each step that it should.
        visual: whether one sees the field, or numbers.
    """
    _check_sizes(height, reach, max_speed)
    rows, columns = np.arange(height)[:, None], np.arange(width)

    def observe(state: PongState) -> Array:
        if visual:
            own_paddle = (jnp.abs(rows - state.own) <= reach) & (columns == 0)
            their = (jnp.abs(rows - state.their) <= reach) & (columns == width - 1)
            ball = (rows == state.row) & (columns == state.column)
            last = (rows == state.last_row) & (columns == state.last_column)
            return jnp.stack([own_paddle | their, ball, last], axis=-1)
        places = jnp.stack([state.own, state.their, state.row, state.column])
        ends = np.array([height, height, height, width], np.float32) - 1
        speeds = jnp.stack([state.down / max_speed, state.right])
        positions = jnp.clip(2 * places / ends - 1, -1, 1)
        return jnp.concatenate([positions, speeds]).astype(jnp.float32)

    def reset(key: Key) -> tuple[PongState, Array]:
        # Of one hash, and not of the six of three `randint`: a lone step shows them.
        word = jax.random.bits(key)
        right, down, row = word % 2, word // 2 % 3, word // 6 % height
        right, down = 2 * right.astype(jnp.int32) - 1, down.astype(jnp.int32) - 1
        middle, column = jnp.int32(height // 2), jnp.int32(width // 2)
        row = row.astype(jnp.int32)
        state = PongState(middle, middle, row, column, down, right, row, column)
        return state, observe(state)

    def move_paddle(paddle: Array, step: Array) -> Array:
        return jnp.clip(paddle + step, reach, height - 1 - reach)

    def bounce(state: PongState, paddle: Array, side: int) -> PongState:
        """Off the paddle of a side: −1 is one's own, 1 the opponent's."""
        front = width - 2 if side == 1 else 1
        is_behind = (state.column - front) * side >= 0
        offset = state.row - paddle
        hit = is_behind & (state.right == side) & (jnp.abs(offset) <= reach)
        spun = jnp.round(state.down + offset / reach).astype(jnp.int32)
        return state._replace(
            column=jnp.where(hit, 2 * front - state.column, state.column),
            right=jnp.where(hit, -side, state.right),
            down=jnp.where(hit, jnp.clip(spun, -max_speed, max_speed), state.down),
        )

    def step(
        state: PongState, action: Array, noise: Array
    ) -> tuple[PongState, TimeStep]:
        move = jnp.where(action == DOWN, 1, 0) - jnp.where(action == UP, 1, 0)
        follow = jnp.where(noise, jnp.sign(state.row - state.their), 0)
        row = state.row + state.down
        wall = (row < 0) | (row >= height)
        row = jnp.where(row < 0, -row, row)
        row = jnp.where(row >= height, 2 * (height - 1) - row, row)
        state = PongState(
            own=move_paddle(state.own, move),
            their=move_paddle(state.their, follow),
            row=row,
            column=state.column + state.right,
            down=jnp.where(wall, -state.down, state.down),
            right=state.right,
            last_row=state.row,
            last_column=state.column,
        )
        state = bounce(bounce(state, state.own, -1), state.their, 1)
        won, lost = state.column >= width, state.column < 0
        reward = won.astype(jnp.float32) - lost.astype(jnp.float32)
        return state, make_timestep(observe(state), reward, won | lost)

    field = spaces.boolean_box(height, width, 3)
    return Environment(
        reset=reset,
        step=step,
        observation=field
        if visual
        else gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32),
        action=gymnasium.spaces.Discrete(3),
        render=lambda state: _draw(jax.device_get(state), width, height, reach),
        draw=lambda key: jax.random.uniform(key) < opponent_skill,
    )


def _check_sizes(height: int, reach: int, max_speed: int) -> None:
    if 2 * reach + 1 >= height:
        raise RlcliError(
            f"a paddle of {2 * reach + 1} rows cannot move in a field of {height}",
            "make `height` greater, or `reach` smaller",
        )
    if max_speed >= height:
        raise RlcliError(
            f"a ball that moves {max_speed} rows leaves a field of {height} at once",
            "make `max_speed` smaller than `height`",
        )


def _draw(state: PongState, width: int, height: int, reach: int) -> np.ndarray:
    """The field, uint8 `[height · cell, width · cell, 3]`; one's own side is left."""
    cell = max(4, min(16, 640 // width))
    canvas = drawing.Canvas(width * cell, height * cell, "#1c2733")
    # The score: an episode is played for one point.
    for x, point, fill in (
        (0.25, int(state.column) >= width, "#e58a84"),
        (0.75, int(state.column) < 0, "#8fb4e3"),
    ):
        dash_corner = (x * width * cell, 0.08 * height * cell)
        canvas.text(dash_corner, str(int(point)), 0.08 * height * cell, fill)
    for row in range(0, height, 2):
        dash_corner = (width * cell / 2 - 1, (row + 0.5) * cell)
        canvas.box(dash_corner, 2, cell, "#3c4c5e")
    for middle, column, fill in (
        (state.own, 0, "#e58a84"),
        (state.their, width - 1, "#8fb4e3"),
    ):
        corner = (column * cell + 1, (int(middle) - reach) * cell + 1)
        canvas.box(corner, cell - 2, (2 * reach + 1) * cell - 2, fill, radius=cell / 4)
    for row, column, share, fill in (
        (state.last_row, state.last_column, 0.3, "#6b7a8c"),
        (state.row, state.column, 0.45, drawing.PAPER),
    ):
        # A ball that is past a paddle is drawn at the edge that it has passed.
        x = float(np.clip(column + 0.5, 0, width)) * cell
        canvas.circle((x, (int(row) + 0.5) * cell), share * cell, fill)
    return canvas.pixels()
