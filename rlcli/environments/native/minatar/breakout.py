"""Breakout: keep a ball in play with a paddle, and break three rows of bricks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Key

TOP, ROWS = 1, 3  # the rows of bricks
BRICKS = 2 ** (ROWS * game.SIZE) - 1  # a bit for each brick

CHANNELS = (
    game.Channel("paddle", drawing.BLUE),
    game.Channel("ball", drawing.PAPER, 0.6),
    game.Channel("trail", drawing.GREY, 0.35),
    game.Channel("brick", drawing.WOOD, 0.94),
)


class BreakoutState(NamedTuple):
    """The ball, the paddle and the bricks."""

    x: Array  # int32: the ball's column
    y: Array  # int32: its row; 0 is the top
    right: Array  # bool: the direction of the ball
    down: Array  # bool
    last_x: Array  # int32: the column one step ago
    last_y: Array  # int32
    paddle: Array  # int32: its column, in the lowest row
    struck: Array  # bool: whether the ball hit a brick in the last step
    bricks: Array  # int32: a bit for each of the 30, row by row


@game.register_game(
    "Breakout",
    ramping="has no effect; every MinAtar game has this option.",
    minimal="whether the actions are only nothing, left and right: 0, 1, 2.",
)
def breakout() -> game.GameRules:
    """Plays Breakout: reward 1 for each brick that the ball breaks.

    The ball moves diagonally and bounces off the walls, the ceiling, the bricks and the
    paddle; it cannot break bricks in two consecutive steps. After the last brick, all
    bricks return when the ball next reaches the bottom. The game is over when the ball
    falls past the paddle.
    Observation: bool `[10, 10, 4]`: row, column, and channel: paddle, ball, trail (the
    previous position of the ball), brick. Actions: 0 nothing, 1 left, 3 right; 2, 4 and
    5 have no effect. The rules are those of MinAtar (Young and Tian, 2019,
    https://arxiv.org/abs/1903.03176).
    """
    return RULES


def _begin(key: Key) -> BreakoutState:
    right = jax.random.bits(key, (), jnp.uint8) < 128
    x, y = jnp.where(right, 0, game.SIZE - 1), jnp.int32(3)
    down, struck = jnp.array(True), jnp.array(False)
    return BreakoutState(
        x, y, right, down, x, y, jnp.int32(4), struck, jnp.int32(BRICKS)
    )


def _play(
    state: BreakoutState, action: Array, noise: tuple[()], ramping: bool
) -> tuple[BreakoutState, Array, Array]:
    del noise, ramping  # the dynamics are deterministic
    end = game.SIZE - 1
    move = (action == game.RIGHT).astype(jnp.int32) - (action == game.LEFT)
    paddle = jnp.clip(state.paddle + move, 0, end)

    next_y = state.y + jnp.where(state.down, 1, -1)
    next_x = state.x + game.x_step(state.right)
    x = jnp.clip(next_x, 0, end)
    ceiling = next_y < 0
    number = (next_y - TOP) * game.SIZE + x
    bit = jnp.where(_is_brick(number), 1 << jnp.clip(number, 0, 31), 0)
    brick = (state.bricks & bit) != 0
    breaks = brick & ~state.struck
    bricks = jnp.where(breaks, state.bricks & ~bit, state.bricks)
    floor = ~brick & (next_y == end)
    bricks = jnp.where(floor & (bricks == 0), BRICKS, bricks)

    # The top of the paddle reflects the ball like a wall; a corner sends it back.
    from_top = floor & (state.x == paddle)
    corner = floor & ~from_top & (x == paddle)
    back = breaks | from_top | corner
    after = BreakoutState(
        x=x,
        y=jnp.where(back, state.y, jnp.maximum(next_y, 0)),
        right=state.right ^ (x != next_x) ^ corner,
        down=state.down ^ (ceiling | back),
        last_x=state.x,
        last_y=state.y,
        paddle=paddle,
        struck=brick,
        bricks=bricks,
    )
    return after, breaks, floor & ~from_top & ~corner


def _is_brick(number: Array) -> Array:
    return (number >= 0) & (number < ROWS * game.SIZE)


# For each entry of a board: the bit of its brick, and whether it has a brick.
_CELL, _CHANNEL = np.divmod(np.arange(game.CELLS * len(CHANNELS)), len(CHANNELS))
_NUMBER = _CELL - TOP * game.SIZE
_SHIFT = np.clip(_NUMBER, 0, 31)
_BRICK = (_CHANNEL == 3) & _is_brick(_NUMBER)


def _paint(state: BreakoutState) -> tuple[Array, list[game.Sprites]]:
    bricks = (state.bricks >> _SHIFT & _BRICK).astype(bool)
    return bricks, [
        game.Sprites(game.SIZE - 1, state.paddle, 0),
        game.Sprites(state.y, state.x, 1),
        game.Sprites(state.last_y, state.last_x, 2),
    ]


_MOST = BreakoutState._make((9, 9, True, True, 9, 9, 9, True, BRICKS))
_ACTIONS = game.NOTHING, game.LEFT, game.RIGHT
RULES = game.GameRules(CHANNELS, _ACTIONS, _MOST, _begin, _play, _paint)
