"""ConnectFour: four stones in a row, against an opponent that looks one move ahead."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Le

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Environment, Key, Probability, TimeStep

EDGE = 3  # empty rows above and below the board
LINES = ((0, 1), (1, 0), (1, 1), (1, -1))  # rows and columns from stone to stone
CELL = 70  # pixels
COLOURS = (("#d1493f", "#bb3a31"), ("#f0c443", "#deb02e"))  # rims and middles of stones


class ConnectFourState(NamedTuple):
    """The stones: a word for each row from above, and in it a bit for each column.

    Three empty rows are above the board and three below: a line is looked for without
    asking where the board ends.
    """

    own: Array  # uint32 [rows + 6]
    their: Array  # uint32 [rows + 6]


class ConnectFourNoise(NamedTuple):
    """What is random in a step: how the opponent chooses."""

    choice: Array  # float32 in [0, 1): of the columns that are as good, from the left
    is_skilled: Array  # bool: whether it looks at the board at all


@register("environment", "ConnectFour-v0")
def connect_four(
    *,
    rows: Annotated[int, Ge(4)] = 6,
    columns: Annotated[int, Ge(4), Le(20)] = 7,
    opponent_skill: Probability = 1.0,
    begins: Literal["either", "agent", "opponent"] = "either",
) -> Environment:
    """Drops stones into columns: 1 for four in a row, −1 if the opponent has them.

    A stone falls on those below it. Lines are level, upright or diagonal; a full board
    is a draw: 0. All three terminate, and so does a column that is full: who plays it
    has lost, −1. The opponent answers in the same step: it wins if it can, else it
    blocks a line of three, else it plays any column.
    Observation: a dictionary: `board`, bool `[rows, columns, 2]`: row, column, and
    whose stone it is: one's own, theirs; and `action_mask`, int8 `[columns]`: 1 where a
    column has room. Actions: the columns. Rules as in (Allen, 1988; Allis, 1988,
    https://tromp.github.io/c4/connect4_thesis.pdf).

    Args:
        rows: of the board.
        columns: of the board.
        opponent_skill: how likely the opponent looks before it plays, each time; else
            it plays any column.
        begins: who plays first; `either`: both are equally likely.
    """
    bits = np.arange(columns, dtype=np.uint32)

    def observe(state: ConnectFourState) -> dict[str, Array]:
        stones = jnp.stack(state, axis=-1)[EDGE:-EDGE, None]  # [rows, 1, 2]
        is_taken = (state.own[EDGE] | state.their[EDGE]) >> bits & 1
        return {
            "action_mask": (is_taken == 0).astype(jnp.int8),
            "board": (stones >> bits[:, None] & 1) == 1,
        }

    def chance(key: Key) -> ConnectFourNoise:
        choice, looks = jax.random.uniform(key, (2,))
        return ConnectFourNoise(choice, looks < opponent_skill)

    def reset(key: Key) -> tuple[ConnectFourState, dict[str, Array]]:
        coin, start = jax.random.uniform(key, (2,))
        theirs = {"either": coin < 0.5, "agent": False}.get(begins, True)
        stone = jnp.uint32(1) << (start * columns).astype(jnp.uint32)
        empty = jnp.zeros(rows + 2 * EDGE, jnp.uint32)
        their_stones = empty.at[-1 - EDGE].set(jnp.where(theirs, stone, 0))
        state = ConnectFourState(empty, their_stones)
        return state, observe(state)

    def step(
        state: ConnectFourState, action: Array, noise: ConnectFourNoise
    ) -> tuple[ConnectFourState, TimeStep]:
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
        return state, make_timestep(observe(state), reward, terminated)

    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Dict(
            {
                "action_mask": gymnasium.spaces.MultiBinary(columns),
                "board": spaces.boolean_box(rows, columns, 2),
            }
        ),
        action=gymnasium.spaces.Discrete(columns),
        render=lambda state: _draw(np.asarray(observe(state)["board"])),
        draw=chance,
    )


def landing_cells(occupied: Array, columns: int) -> Array:
    """Where stones would come to lie, `[rows]`: the lowest free cell of each column."""
    rows = len(occupied) - 2 * EDGE
    floor = np.where(np.arange(rows) == rows - 1, 2**columns - 1, 0).astype(np.uint32)
    support = occupied[EDGE + 1 : EDGE + 1 + rows] | floor
    return support & ~occupied[EDGE:-EDGE]


def drop_stone(stones: Array, free: Array, column: Array) -> Array:
    """The stones with one more, in the column of that bit, if it has room."""
    return stones | jnp.pad(free & column, EDGE)


def winning_columns(stones: Array, free: Array) -> Array:
    """The columns where one more stone makes four in a row, a bit for each."""
    return bitwise_any(completing_cells(stones) & free)


def completing_cells(stones: Array) -> Array:
    """Cells from which three of the stones lie in one line of four, `[rows]`.

    Beyond the last column there may be bits, too, which mean nothing.
    """
    rows = len(stones) - 2 * EDGE

    def shifted_stones(down: int, right: int) -> Array:
        """The stones so far away, each seen from where it is looked for."""
        rows_there = stones[EDGE + down : EDGE + down + rows]
        return rows_there >> right if right >= 0 else rows_there << -right

    cells = jnp.zeros(rows, jnp.uint32)
    for down, right in LINES:
        near = [shifted_stones(i * down, i * right) for i in (-3, -2, -1, 1, 2, 3)]
        for first in range(4):
            cells |= near[first] & near[first + 1] & near[first + 2]
    return cells


def bitwise_any(words: Array) -> Array:
    """The bits that any of the words has."""
    return jax.lax.reduce(words, np.uint32(0), jax.lax.bitwise_or, (0,))


def choose_bit(word: Array, uniform: Array, max_bits: int) -> Array:
    """One of a word's bits, alone, all equally likely, by a number in [0, 1).

    There are at most `max_bits` bits; of none it is none.
    """
    left = (uniform * jax.lax.population_count(word)).astype(jnp.int32)
    for number in range(max_bits - 1):  # the lowest goes, as often as the number says
        word = jnp.where(number < left, word & (word - 1), word)
    return word & (~word + 1)


def _draw(board: np.ndarray) -> np.ndarray:
    """The board `[rows, columns, 2]` from the front, uint8 with a legend."""
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
