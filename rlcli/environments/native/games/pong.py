"""Pong: play a ball past an opponent whose paddle follows it."""

from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, Probability

UP, DOWN = 1, 2


class PongState(NamedTuple):
    """Paddles and ball, int32; row 0 is the top, column 0 is the agent's side."""

    own: Array  # the row of the middle of the agent's paddle
    their: Array  # the row of the middle of the opponent's paddle
    row: Array  # of the ball
    column: Array
    down: Array  # rows per step: the vertical speed of the ball
    right: Array  # columns per step: 1 or −1
    last_row: Array  # of the ball, one step ago
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
) -> Core:
    """Plays for one point: reward 1 if the ball passes the opponent, −1 if the agent.

    Both terminate the episode. A paddle moves up to one row per step, the ball one
    column. The ball bounces off the upper and lower walls, and off a paddle that is
    next to it or one column behind. A paddle changes the ball's rows per step by (its
    row − the paddle's) / reach, rounded, halves to even. The opponent follows the ball
    but is slower, so hitting the ball with the edge of the paddle can beat it.
    Observation: bool `[height, width, 3]`: row, column, and channel: paddle, ball,
    previous position of the ball. Without `visual`: float32 `[6]`, −1 … 1: the rows of
    the agent's paddle, the opponent's paddle and the ball, the ball's column, and its
    rows and columns per step. Actions: 0 nothing, 1 up, 2 down. An episode begins with
    the ball in the middle column, in a random row, moving in a random direction. As in
    gymnax (Lange, 2022, https://github.com/RobertTLange/gymnax), except for its missing
    wall, its rewards and its fixed initial state.

    Args:
        width: the number of columns.
        height: the number of rows.
        reach: the number of rows of a paddle above its middle, and below it.
        max_speed: the maximum rows per step of the ball.
        opponent_skill: the probability that the opponent moves when it should.
        visual: whether to observe the field as an image instead of numbers.
    """
    _check_sizes(height, reach, max_speed)

    def observe(state: PongState) -> Array:
        if visual:
            return _observe_field(state, width, height, reach)
        return _observe_numbers(state, width, height, max_speed)

    def begin(key: Key) -> PongState:
        # One hash instead of the six of three `randint` calls, which slow single steps.
        word = jax.random.bits(key)
        right, down, row = word % 2, word // 2 % 3, word // 6 % height
        right, down = 2 * right.astype(jnp.int32) - 1, down.astype(jnp.int32) - 1
        middle, column = jnp.int32(height // 2), jnp.int32(width // 2)
        row = row.astype(jnp.int32)
        return PongState(middle, middle, row, column, down, right, row, column)

    def move_paddle(paddle: Array, step: Array) -> Array:
        return jnp.clip(paddle + step, reach, height - 1 - reach)

    def bounce(state: PongState, paddle: Array, side: int) -> PongState:
        front = width - 2 if side == 1 else 1
        return _bounce(state, paddle, side, front, reach, max_speed)

    def step(state: PongState, action: Array, noise: Array) -> tuple:
        move = jnp.where(action == DOWN, 1, 0) - jnp.where(action == UP, 1, 0)
        follow = jnp.where(noise, jnp.sign(state.row - state.their), 0)
        row = state.row + state.down
        hits_wall = (row < 0) | (row >= height)
        row = jnp.where(row < 0, -row, row)
        row = jnp.where(row >= height, 2 * (height - 1) - row, row)
        state = PongState(
            own=move_paddle(state.own, move),
            their=move_paddle(state.their, follow),
            row=row,
            column=state.column + state.right,
            down=jnp.where(hits_wall, -state.down, state.down),
            right=state.right,
            last_row=state.row,
            last_column=state.column,
        )
        state = bounce(bounce(state, state.own, -1), state.their, 1)
        won, lost = state.column >= width, state.column < 0
        reward = won.astype(jnp.float32) - lost.astype(jnp.float32)
        return state, reward, won | lost

    def draw(key: Key) -> Array:
        return jax.random.uniform(key) < opponent_skill

    def render(state: PongState) -> np.ndarray:
        return _draw(jax.device_get(state), width, height, reach)

    field = spaces.boolean_box(height, width, 3)
    numbers = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
    observation = field if visual else numbers
    return native_core(begin, step, observe, observation, 3, render=render, draw=draw)


def _observe_field(state: PongState, width: int, height: int, reach: int) -> Array:
    """The field as an image, bool `[height, width, 3]`."""
    rows, columns = np.arange(height)[:, None], np.arange(width)
    own_paddle = (jnp.abs(rows - state.own) <= reach) & (columns == 0)
    their_paddle = (jnp.abs(rows - state.their) <= reach) & (columns == width - 1)
    ball = (rows == state.row) & (columns == state.column)
    last = (rows == state.last_row) & (columns == state.last_column)
    return jnp.stack([own_paddle | their_paddle, ball, last], axis=-1)


def _observe_numbers(
    state: PongState, width: int, height: int, max_speed: int
) -> Array:
    """Positions and speeds, float32 `[6]`."""
    places = jnp.stack([state.own, state.their, state.row, state.column])
    ends = np.array([height, height, height, width], np.float32) - 1
    speeds = jnp.stack([state.down / max_speed, state.right])
    positions = jnp.clip(2 * places / ends - 1, -1, 1)
    return jnp.concatenate([positions, speeds]).astype(jnp.float32)


def _bounce(
    state: PongState, paddle: Array, side: int, front: int, reach: int, max_speed: int
) -> PongState:
    """Bounces the ball off a paddle: side −1 is the agent's, 1 the opponent's.

    `front` is the column in front of the paddle.
    """
    is_behind = (state.column - front) * side >= 0
    offset = state.row - paddle
    hit = is_behind & (state.right == side) & (jnp.abs(offset) <= reach)
    vertical_speed = jnp.round(state.down + offset / reach).astype(jnp.int32)
    return state._replace(
        column=jnp.where(hit, 2 * front - state.column, state.column),
        right=jnp.where(hit, -side, state.right),
        down=jnp.where(
            hit, jnp.clip(vertical_speed, -max_speed, max_speed), state.down
        ),
    )


def _check_sizes(height: int, reach: int, max_speed: int) -> None:
    if 2 * reach + 1 >= height:
        message = f"a paddle of {2 * reach + 1} rows cannot move in a field of {height}"
        raise RlcliError(message, "use a larger `height` or a smaller `reach`")
    if max_speed >= height:
        raise RlcliError(
            f"a ball with `max_speed: {max_speed}` leaves a field of {height} rows",
            "use a `max_speed` below `height`",
        )


def _draw(state: PongState, width: int, height: int, reach: int) -> np.ndarray:
    """Draws the field, uint8 `[height · cell, width · cell, 3]`; the agent is left."""
    cell = max(4, min(16, 640 // width))
    canvas = drawing.Canvas(width * cell, height * cell, "#1c2733")
    # The score, 0 or 1.
    for x, point, fill in (
        (0.25, int(state.column) >= width, "#e58a84"),
        (0.75, int(state.column) < 0, "#8fb4e3"),
    ):
        text_centre = (x * width * cell, 0.08 * height * cell)
        canvas.text(text_centre, str(int(point)), 0.08 * height * cell, fill)
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
        # A ball past a paddle is drawn at the edge of the field.
        x = float(np.clip(column + 0.5, 0, width)) * cell
        canvas.circle((x, (int(row) + 0.5) * cell), share * cell, fill)
    return canvas.pixels()
