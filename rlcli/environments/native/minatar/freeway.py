"""Freeway: cross eight lanes of cars repeatedly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Key

LANES = 8  # rows 1 to 8, with a car in each
ROW = np.arange(1, 1 + LANES)
START, COLUMN = 9, 4  # the initial cell of the chicken
REST = 3  # steps between two moves of the chicken
STEPS = 2500  # an episode ends one step later
SLOWEST = 5

CHANNELS = (
    game.Channel("chicken", "#e3b341"),
    game.Channel("car", drawing.RED),
    game.Channel("speed1", "#f2f4f7", 0.5),
    game.Channel("speed2", "#c3cad4", 0.45),
    game.Channel("speed3", "#98a3b3", 0.4),
    game.Channel("speed4", "#8a95a5", 0.35),
    game.Channel("speed5", "#727d8c", 0.3),
)


class Cars(NamedTuple):
    """The speed and direction of the cars."""

    wait: Array  # int32[8] in [1, 5]: idle steps between two moves of a car
    right: Array  # bool[8]: the direction of a car


class FreewayState(NamedTuple):
    """The chicken, the cars, and the time."""

    y: Array  # int32: the chicken's row; 0 is the top
    rest: Array  # int32: steps until the chicken may move
    steps: Array  # int32: the remaining steps of the episode
    column: Array  # int32[8]: the columns of the cars
    timer: Array  # int32[8]: steps until each car moves
    cars: Cars


@game.register_game(
    "Freeway",
    ramping="has no effect; every MinAtar game has this option.",
    minimal="whether the actions are only nothing, up and down: 0, 1, 2.",
)
def freeway() -> game.GameRules:
    """Plays Freeway: reward 1 each time the chicken crosses the road.

    The chicken then starts again from the bottom, and all cars change speed and
    direction. A car sends the chicken back; the chicken moves at most every third step.
    The game is over after 2501 steps.
    Observation: bool `[10, 10, 7]`: row, column, and channel: chicken, car, and for
    each of the five speeds the previous position of a car that moves every 2nd to 6th
    step. Actions: 0 nothing, 2 up, 4 down; 1, 3 and 5 have no effect. The rules are
    those of MinAtar (Young and Tian, 2019, https://arxiv.org/abs/1903.03176).
    """
    return RULES


def _begin(key: Key) -> FreewayState:
    cars = _noise_from_words(jax.random.bits(key, (RULES.words,)))
    return FreewayState(
        y=jnp.int32(START),
        rest=jnp.int32(REST),
        steps=jnp.int32(STEPS),
        column=jnp.zeros(LANES, jnp.int32),
        timer=cars.wait,
        cars=cars,
    )


def _noise_from_words(words: Array) -> Cars:
    # A car has ten combinations of speed and direction: one decimal digit of a word.
    digits = (words[:, None] // np.array([1, 10, 100, 1000], np.uint32) % 10).ravel()
    wait = 1 + (digits % SLOWEST).astype(jnp.int32)
    return Cars(wait, digits < SLOWEST)


def _play(
    state: FreewayState, action: Array, noise: Cars, ramping: bool
) -> tuple[FreewayState, Array, Array]:
    del ramping  # the difficulty is constant
    move = (action == game.DOWN).astype(jnp.int32) - (action == game.UP)
    moves = (move != 0) & (state.rest == 0)
    rest = jnp.where(moves, REST, state.rest)
    y = jnp.clip(state.y + jnp.where(moves, move, 0), 0, START)

    across = y == 0
    y = jnp.where(across, START, y)
    cars = jax.tree.map(lambda new, old: jnp.where(across, new, old), noise, state.cars)
    timer = jnp.where(across, cars.wait, state.timer)

    is_moving = timer == 0
    next_column = _wrap_column(state.column + game.x_step(cars.right))
    column = jnp.where(is_moving, next_column, state.column)
    hit = (y == ROW) & ((state.column == COLUMN) | (column == COLUMN))
    after = FreewayState(
        y=jnp.where(jnp.any(hit), START, y),
        rest=jnp.maximum(rest - 1, 0),
        steps=jnp.maximum(state.steps - 1, 0),
        column=column,
        timer=jnp.where(is_moving, cars.wait, timer - 1),
        cars=cars,
    )
    return after, across, state.steps == 0


def _wrap_column(x: Array) -> Array:
    """Wraps a column around the board."""
    return jax.lax.rem(x + game.SIZE, game.SIZE)


def _paint(state: FreewayState) -> tuple[None, list[game.Sprites]]:
    trail_column = _wrap_column(state.column - game.x_step(state.cars.right))
    return None, [
        game.Sprites(state.y, COLUMN, 0),
        game.Sprites(ROW, state.column, 1),
        game.Sprites(ROW, trail_column, 1 + state.cars.wait),
    ]


_MOST_CARS = Cars(np.full(LANES, SLOWEST), np.ones(LANES, bool))
_MOST = FreewayState._make(
    (9, REST, STEPS, np.full(LANES, 9), _MOST_CARS.wait, _MOST_CARS)
)
_ACTIONS = game.NOTHING, game.UP, game.DOWN
RULES = game.GameRules(
    CHANNELS, _ACTIONS, _MOST, _begin, _play, _paint, 2, _noise_from_words
)
