"""Asterix: collect gold and avoid enemies."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Key

LANES = 8  # rows 1 to 8, with at most one object in each
ROW = np.arange(1, 1 + LANES)
SHARES = 840  # divisible by every number of free lanes, 1 to 8
SPAWN, MOVE = 10, 5  # initial steps between two spawns, and between two moves
RAMP, LEVELS = 101, 9  # steps between two levels, and the number of levels

CHANNELS = (
    game.Channel("player", drawing.BLUE),
    game.Channel("enemy", drawing.RED),
    game.Channel("trail", drawing.GREY, 0.35),
    game.Channel("gold", "#e3b341"),
)


class AsterixState(NamedTuple):
    """The player, the object in each lane, and the timers."""

    x: Array  # int32: the player's column
    y: Array  # int32: the player's row; 0 is the top
    spawn_timer: Array  # int32: steps until an object may appear
    move_timer: Array  # int32: steps until the objects move
    ramp_timer: Array  # int32: steps until the next level
    level: Array  # int32: the number of increases in difficulty
    is_occupied: Array  # bool[8]: whether the lane has an object
    column: Array  # int32[8]; 0 in an empty lane
    right: Array  # bool[8]: whether it moves right
    gold: Array  # bool[8]: gold or an enemy


class AsterixNoise(NamedTuple):
    """The next object."""

    right: Array  # bool: whether it enters from the left and moves right
    gold: Array  # bool
    share: Array  # int32 in [0, 840): share · free // 840 is its place among free lanes


@game.register_game(
    "Asterix",
    ramping="whether the difficulty increases nine times, every 102 steps: objects "
    "appear more often each time, and move faster every second time.",
    minimal="whether the actions are only the five with an effect.",
)
def asterix() -> game.GameRules:
    """Plays Asterix: reward 1 for each piece of gold.

    Enemies and gold (one in three) enter free lanes from either side and cross the
    board. The game is over when the player touches an enemy.
    Observation: bool `[10, 10, 4]`: row, column, and channel: player, enemy, trail (the
    previous position of an enemy or gold), gold. Actions: 0 nothing, 1 left, 2 up, 3
    right, 4 down; 5 has no effect. The rules are those of MinAtar (Young and Tian,
    2019, https://arxiv.org/abs/1903.03176).
    """
    return RULES


def _begin(key: Key) -> AsterixState:
    del key  # the initial state is fixed
    no_lanes = jnp.zeros(LANES, bool)
    return AsterixState(
        x=jnp.int32(5),
        y=jnp.int32(5),
        spawn_timer=jnp.int32(SPAWN),
        move_timer=jnp.int32(MOVE),
        ramp_timer=jnp.int32(RAMP),
        level=jnp.int32(0),
        is_occupied=no_lanes,
        column=jnp.zeros(LANES, jnp.int32),
        right=no_lanes,
        gold=no_lanes,
    )


def _noise_from_words(words: Array) -> AsterixNoise:
    word = words[0]
    kind, rest = word % 6, word // 6
    return AsterixNoise(kind < 3, kind % 3 == 0, (rest % SHARES).astype(jnp.int32))


def _play(
    state: AsterixState, action: Array, noise: AsterixNoise, ramping: bool
) -> tuple[AsterixState, Array, Array]:
    state = _spawn(state, noise)
    across = (action == game.RIGHT).astype(jnp.int32) - (action == game.LEFT)
    downward = (action == game.DOWN).astype(jnp.int32) - (action == game.UP)
    x = jnp.clip(state.x + across, 0, 9)
    y = jnp.clip(state.y + downward, 1, 8)

    lane = y == ROW
    met_before = state.is_occupied & lane & (state.column == x)
    is_occupied = state.is_occupied & ~(met_before & state.gold)
    moves = is_occupied & (state.move_timer == 0)
    column = state.column + jnp.where(moves, game.x_step(state.right), 0)
    is_occupied = is_occupied & game.is_on_board(column)
    met_after = is_occupied & lane & (column == x)
    collected = (met_before | met_after) & state.gold  # a lane has one object at most
    hit = (met_before | met_after) & ~state.gold
    is_occupied = is_occupied & ~collected

    move_timer = jnp.where(state.move_timer == 0, _move_speed(state), state.move_timer)
    after = state._replace(
        x=x,
        y=y,
        spawn_timer=state.spawn_timer - 1,
        move_timer=move_timer - 1,
        is_occupied=is_occupied,
        column=jnp.where(is_occupied, column, 0),
    )
    if ramping:
        after = _ramp(after)
    return after, jnp.any(collected), jnp.any(hit)


def _spawn_speed(state: AsterixState) -> Array:
    return jnp.maximum(SPAWN - state.level, 1)


def _move_speed(state: AsterixState) -> Array:
    return jnp.maximum(MOVE - (state.level >> 1), 1)


def _spawn(state: AsterixState, noise: AsterixNoise) -> AsterixState:
    due = state.spawn_timer == 0
    free = ~state.is_occupied
    bits = jnp.sum(jnp.where(free, 1 << ROW, 0))
    rank = jax.lax.div(noise.share * _popcount(bits), SHARES)
    new = due & free & (_popcount(bits & (1 << ROW) - 1) == rank)
    return state._replace(
        spawn_timer=jnp.where(due, _spawn_speed(state), state.spawn_timer),
        is_occupied=state.is_occupied | new,
        column=jnp.where(new & ~noise.right, 9, state.column),
        right=jnp.where(new, noise.right, state.right),
        gold=jnp.where(new, noise.gold, state.gold),
    )


def _popcount(bits: Array) -> Array:
    return jax.lax.population_count(bits)


def _ramp(state: AsterixState) -> AsterixState:
    is_active = state.level < LEVELS
    is_due = is_active & (state.ramp_timer == 0)
    return state._replace(
        level=state.level + is_due,
        ramp_timer=jnp.where(is_due, RAMP, state.ramp_timer - (is_active & ~is_due)),
    )


def _paint(state: AsterixState) -> tuple[None, list[game.Sprites]]:
    trail = np.array([[False], [True]])  # the objects, then their trails
    x = state.column - jnp.where(trail, game.x_step(state.right), 0)
    kind = jnp.where(state.gold, 3, 1)
    return None, [
        game.Sprites(state.y, state.x, 0),
        game.Sprites(
            y=ROW,
            x=x,
            channel=jnp.where(trail, 2, kind),
            visible=state.is_occupied & game.is_on_board(x),
        ),
    ]


_FLAGS = np.ones(LANES, bool)
_MOST = AsterixState._make(
    (9, 8, SPAWN, MOVE, RAMP, LEVELS, _FLAGS, np.full(LANES, 9), _FLAGS, _FLAGS)
)
_ACTIONS = game.NOTHING, game.LEFT, game.UP, game.RIGHT, game.DOWN
RULES = game.GameRules(
    CHANNELS, _ACTIONS, _MOST, _begin, _play, _paint, 1, _noise_from_words
)
