"""ConnectFour: four stones in a row, against an opponent that looks one move ahead."""

from typing import Annotated, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Le

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Key, Probability

EDGE = 3  # empty rows above and below the board
LINES = ((0, 1), (1, 0), (1, 1), (1, -1))  # rows and columns between adjacent stones
CELL = 70  # pixels
COLOURS = (("#d1493f", "#bb3a31"), ("#f0c443", "#deb02e"))  # rims and middles of stones


class ConnectFourState(NamedTuple):
    """The stones: one word per row, from the top, and in it one bit per column.

    Three empty rows above and below the board make bounds checks unnecessary when
    searching for lines.
    """

    own: Array  # uint32 [rows + 6]
    their: Array  # uint32 [rows + 6]


class ConnectFourNoise(NamedTuple):
    """The randomness of a step: the choice of the opponent."""

    choice: Array  # float32 in [0, 1): selects among equally good columns
    is_skilled: Array  # bool: whether the opponent looks at the board


@register("environment", "ConnectFour-v0")
def connect_four(
    *,
    rows: Annotated[int, Ge(4)] = 6,
    columns: Annotated[int, Ge(4), Le(20)] = 7,
    opponent_skill: Probability = 1.0,
    begins: Literal["either", "agent", "opponent"] = "either",
) -> Core:
    """Plays Connect Four: reward 1 for four in a row, −1 if the opponent has them.

    A stone falls onto the stones below it. Lines are horizontal, vertical or diagonal;
    a full board is a draw with reward 0. A win, a loss and a draw terminate the
    episode. Playing a full column loses immediately: reward −1. The opponent replies in
    the same step: it wins if it can, else blocks a line of three, else plays a random
    column.
    Observation: a dictionary with `board`, bool `[rows, columns, 2]`: row, column, and
    channel: own stone, opponent's stone; and `action_mask`, int8 `[columns]`: 1 where a
    column has room. Actions: the columns. Rules as in (Allen, 1988; Allis, 1988,
    https://tromp.github.io/c4/connect4_thesis.pdf).

    Args:
        rows: the number of rows.
        columns: the number of columns.
        opponent_skill: the probability, for each move, that the opponent looks at the
            board; else it plays a random column.
        begins: who plays first; `either`: drawn with equal probability.
    """
    bits = np.arange(columns, dtype=np.uint32)

    def observe(state: ConnectFourState) -> dict[str, Array]:
        stones = jnp.stack(state, axis=-1)[EDGE:-EDGE, None]  # [rows, 1, 2]
        is_taken = (state.own[EDGE] | state.their[EDGE]) >> bits & 1
        return {
            "action_mask": (is_taken == 0).astype(jnp.int8),
            "board": (stones >> bits[:, None] & 1) == 1,
        }

    def draw(key: Key) -> ConnectFourNoise:
        choice, looks = jax.random.uniform(key, (2,))
        return ConnectFourNoise(choice, looks < opponent_skill)

    def begin(key: Key) -> ConnectFourState:
        coin, start = jax.random.uniform(key, (2,))
        opponent_begins = {"either": coin < 0.5, "agent": False}.get(begins, True)
        stone = jnp.uint32(1) << (start * columns).astype(jnp.uint32)
        empty = jnp.zeros(rows + 2 * EDGE, jnp.uint32)
        their_stones = empty.at[-1 - EDGE].set(jnp.where(opponent_begins, stone, 0))
        return ConnectFourState(empty, their_stones)

    def step(state: ConnectFourState, action: Array, noise: ConnectFourNoise) -> tuple:
        own_stones, their = state
        free = landing_cells(own_stones | their, columns)
        move = jnp.uint32(1) << jnp.asarray(action).astype(jnp.uint32)
        legal = bitwise_any(free) & move != 0
        won = winning_columns(own_stones, free) & move != 0
        own_stones = drop_stone(own_stones, free, move)

        free = landing_cells(own_stones | their, columns)
        room, wins, blocks = (
            bitwise_any(free),
            winning_columns(their, free),
            winning_columns(own_stones, free),
        )
        choices = jnp.where(wins != 0, wins, jnp.where(blocks != 0, blocks, room))
        terminated = won | ~legal | (room == 0)
        reply = choose_bit(
            jnp.where(noise.is_skilled, choices, room), noise.choice, columns
        )
        reply = jnp.where(terminated, 0, reply)
        lost = wins & reply != 0
        their = drop_stone(their, free, reply)

        state = ConnectFourState(own_stones, their)
        reward = won.astype(jnp.float32) - (lost | ~legal).astype(jnp.float32)
        terminated = (
            terminated | lost | ((own_stones[EDGE] | their[EDGE]) == 2**columns - 1)
        )
        return state, reward, terminated

    def render(state: ConnectFourState) -> np.ndarray:
        return _draw(np.asarray(observe(state)["board"]))

    members = {
        "action_mask": gymnasium.spaces.MultiBinary(columns),
        "board": spaces.boolean_box(rows, columns, 2),
    }
    observation = gymnasium.spaces.Dict(members)
    return native_core(
        begin, step, observe, observation, columns, render=render, draw=draw
    )


def landing_cells(occupied: Array, columns: int) -> Array:
    """The lowest free cell of each column, `[rows]`."""
    rows = len(occupied) - 2 * EDGE
    floor = np.where(np.arange(rows) == rows - 1, 2**columns - 1, 0).astype(np.uint32)
    support = occupied[EDGE + 1 : EDGE + 1 + rows] | floor
    return support & ~occupied[EDGE:-EDGE]


def drop_stone(stones: Array, free: Array, column: Array) -> Array:
    """Adds a stone in the column of the bit `column`, if the column has room."""
    return stones | jnp.pad(free & column, EDGE)


def winning_columns(stones: Array, free: Array) -> Array:
    """The columns where one more stone completes four in a row, one bit per column."""
    return bitwise_any(completing_cells(stones) & free)


def completing_cells(stones: Array) -> Array:
    """The cells that would complete a line of four with three of the stones, `[rows]`.

    Bits beyond the last column are meaningless.
    """
    rows = len(stones) - 2 * EDGE

    def shifted_stones(down: int, right: int) -> Array:
        """The stones, shifted so that the neighbour at this offset is at each cell."""
        rows_there = stones[EDGE + down : EDGE + down + rows]
        return rows_there >> right if right >= 0 else rows_there << -right

    cells = jnp.zeros(rows, jnp.uint32)
    for down, right in LINES:
        near = [shifted_stones(i * down, i * right) for i in (-3, -2, -1, 1, 2, 3)]
        for first in range(4):
            cells |= near[first] & near[first + 1] & near[first + 2]
    return cells


def bitwise_any(words: Array) -> Array:
    """The bitwise or of all words."""
    return jax.lax.reduce(words, np.uint32(0), jax.lax.bitwise_or, (0,))


def choose_bit(word: Array, uniform: Array, max_bits: int) -> Array:
    """Maps a number in [0, 1) to one of a word's bits, uniformly; 0 if there are none.

    The word has at most `max_bits` bits.
    """
    left = (uniform * jax.lax.population_count(word)).astype(jnp.int32)
    for number in range(max_bits - 1):  # clears the lowest bit `left` times
        word = jnp.where(number < left, word & (word - 1), word)
    return word & (~word + 1)


def _draw(board: np.ndarray) -> np.ndarray:
    """Draws the board `[rows, columns, 2]` from the front, uint8 with a legend."""
    rows, columns, _ = board.shape
    canvas = drawing.Canvas(columns * CELL + 20, rows * CELL + 60)
    canvas.box((4, 4), columns * CELL + 12, rows * CELL + 12, "#2f5d9e", radius=14)
    for row, column in np.ndindex(rows, columns):
        centre = (10 + (column + 0.5) * CELL, 10 + (row + 0.5) * CELL)
        canvas.circle(centre, 0.4 * CELL, "#254b81")
        canvas.circle(centre, 0.36 * CELL, "#e8edf4")
        for (rim, middle), has_stone in zip(COLOURS, board[row, column], strict=True):
            if has_stone:
                canvas.circle(centre, 0.36 * CELL, rim)
                canvas.circle(centre, 0.24 * CELL, middle)
    legend = {"agent": COLOURS[0][0], "opponent": COLOURS[1][0]}
    canvas.legend((16, rows * CELL + 30), legend)
    return canvas.pixels()
