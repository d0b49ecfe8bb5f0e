"""Freeway: cross eight lanes of cars, again and again."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Environment, Key, Probability

LANES = 8  # rows 1 to 8, with a car in each
ROW = np.arange(1, 1 + LANES)
START, COLUMN = 9, 4  # where the chicken sets out
REST = 3  # steps from one of its moves to the next
STEPS = 2500  # an episode ends after one more
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
    """How the cars drive."""

    wait: Array  # int32[8] in [1, 5]: steps that a car stands between two moves
    right: Array  # bool[8]: where it drives


class FreewayState(NamedTuple):
    """The chicken, the cars, and the time."""

    y: Array  # int32: the chicken's row; 0 is the top
    rest: Array  # int32: steps until it may move
    steps: Array  # int32: what is left of the episode
    column: Array  # int32[8]: where the cars are
    timer: Array  # int32[8]: steps until they move
    cars: Cars


@game.register_game("Freeway")
def freeway(
    *,
    sticky_action_prob: Probability = 0.1,
    difficulty_ramping: bool = True,
    minimal_actions: bool = False,
) -> Environment:
    """Plays Freeway: 1 each time the chicken gets to the other side.

    Then it starts again from below, and all cars drive otherwise. A car sends it back;
    it makes one step in three. The game is over after 2501 steps.
    Observation: bool `[10, 10, 7]`: row, column, and what is there: chicken, car, and
    for the five speeds where a car that moves every 2nd to 6th step came from.
    Actions: 0 nothing, 2 up, 4 down; 1, 3 and 5 do nothing. The rules are MinAtar's
    (Young and Tian, 2019, https://arxiv.org/abs/1903.03176).

    Args:
        sticky_action_prob: how likely the last action is repeated; in an episode's
            first step that is 0 (in MinAtar the last one of the episode before).
        difficulty_ramping: does nothing; MinAtar takes it of every game.
        minimal_actions: whether there are only nothing, up and down: 0, 1, 2.
    """
    return game.game_environment(
        RULES,
        sticky_action_prob=sticky_action_prob,
        difficulty_ramping=difficulty_ramping,
        minimal_actions=minimal_actions,
    )


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
    # Ten ways for a car to drive: four decimal digits of each word.
    digits = (words[:, None] // np.array([1, 10, 100, 1000], np.uint32) % 10).ravel()
    wait = 1 + (digits % SLOWEST).astype(jnp.int32)
    return Cars(wait, digits < SLOWEST)


def _play(
    state: FreewayState, action: Array, noise: Cars, ramping: bool
) -> tuple[FreewayState, Array, Array]:
    del ramping  # it does not become harder
    move = (action == game.DOWN).astype(jnp.int32) - (action == game.UP)
    moves = (move != 0) & (state.rest == 0)
    rest = jnp.where(moves, REST, state.rest)
    y = jnp.clip(state.y + jnp.where(moves, move, 0), 0, START)

    across = y == 0
    y = jnp.where(across, START, y)
    cars = jax.tree.map(lambda new, old: jnp.where(across, new, old), noise, state.cars)
    timer = jnp.where(across, cars.wait, state.timer)

    drives = timer == 0
    next_column = _wrap_column(state.column + game.x_step(cars.right))
    column = jnp.where(drives, next_column, state.column)
    hit = (y == ROW) & ((state.column == COLUMN) | (column == COLUMN))
    after = FreewayState(
        y=jnp.where(jnp.any(hit), START, y),
        rest=jnp.maximum(rest - 1, 0),
        steps=jnp.maximum(state.steps - 1, 0),
        column=column,
        timer=jnp.where(drives, cars.wait, timer - 1),
        cars=cars,
    )
    return after, across, state.steps == 0


def _wrap_column(x: Array) -> Array:
    """What leaves the board on one side comes in again on the other."""
    return jax.lax.rem(x + game.SIZE, game.SIZE)


def _paint(state: FreewayState) -> tuple[None, list[game.Sprites]]:
    trail_column = _wrap_column(state.column - game.x_step(state.cars.right))
    return None, [
        game.Sprites(state.y, COLUMN, 0),
        game.Sprites(ROW, state.column, 1),
        game.Sprites(ROW, trail_column, 1 + state.cars.wait),
    ]


_MAX_TIMER = np.full(LANES, SLOWEST)
RULES = game.GameRules(
    channels=CHANNELS,
    actions=(game.NOTHING, game.UP, game.DOWN),
    max_values=FreewayState(
        9,
        REST,
        STEPS,
        np.full(LANES, 9),
        _MAX_TIMER,
        Cars(_MAX_TIMER, np.ones(LANES, bool)),
    ),
    begin=_begin,
    words=2,
    draw_noise=_noise_from_words,
    play=_play,
    paint=_paint,
)
