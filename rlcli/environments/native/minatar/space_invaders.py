"""SpaceInvaders: shoot down waves of aliens before they land."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Key

COLUMN = np.arange(game.SIZE)
ROW = np.arange(game.SIZE)
FULL = 2**game.SIZE - 1  # a row of ten bits; bit x is column x
LOWEST = game.SIZE - 1  # the row where the cannon stands
WAVE = np.array([0b0011111100] * 4 + [0] * 6)
RELOAD, ENEMY_RELOAD = 5, 10  # steps between two shots
SLOWEST, FASTEST = 12, 6  # steps between two moves of a full wave: first and last wave

CHANNELS = (
    game.Channel("cannon", drawing.BLUE),
    game.Channel("alien", drawing.GREEN),
    game.Channel("alien_left", "#f2f4f7", 0.3),
    game.Channel("alien_right", "#e3b341", 0.3),
    game.Channel("friendly_bullet", "#8fc7ff", 0.5),
    game.Channel("enemy_bullet", drawing.RED, 0.5),
)


class SpaceInvadersState(NamedTuple):
    """Cannon, aliens and bullets. A row is an integer; bit x is column x."""

    x: Array  # int32: the cannon's column
    right: Array  # bool: whether the aliens move right
    interval: Array  # int32: steps between two moves of a full wave
    move_timer: Array  # int32: steps until the aliens move
    alien_timer: Array  # int32: steps until an alien shoots
    shot_timer: Array  # int32: steps until the cannon may shoot
    aliens: Array  # int32[10]
    shots: Array  # int32[10]: bullets of the cannon, which move up
    bombs: Array  # int32[10]: bullets of the aliens, which move down


@game.register_game(
    "SpaceInvaders",
    ramping="whether each wave is faster than the previous one.",
    minimal="whether the actions are only the four with an effect.",
)
def space_invaders() -> game.GameRules:
    """Plays SpaceInvaders: reward 1 for each alien shot down.

    The aliens move from side to side, and down at either side; fewer aliens move
    faster. The alien nearest to the cannon shoots. A new wave follows the last alien of
    a wave. The game is over when a bullet or an alien hits the cannon, or when the
    aliens land.
    Observation: bool `[10, 10, 6]`: row, column, and channel: cannon, alien, alien
    moving left, alien moving right, bullet of the cannon, bullet of an alien. Actions:
    0 nothing, 1 left, 3 right, 5 fire; 2 and 4 have no effect. The rules are those of
    MinAtar (Young and Tian, 2019, https://arxiv.org/abs/1903.03176).
    """
    return RULES


def _begin(key: Key) -> SpaceInvadersState:
    del key  # the initial state is fixed
    empty = jnp.zeros(game.SIZE, jnp.int32)
    return SpaceInvadersState(
        x=jnp.int32(5),
        right=jnp.array(False),
        interval=jnp.int32(SLOWEST),
        move_timer=jnp.int32(SLOWEST),
        alien_timer=jnp.int32(ENEMY_RELOAD),
        shot_timer=jnp.int32(0),
        aliens=jnp.asarray(WAVE, jnp.int32),
        shots=empty,
        bombs=empty,
    )


def _play(
    state: SpaceInvadersState, action: Array, noise: tuple[()], ramping: bool
) -> tuple[SpaceInvadersState, Array, Array]:
    del noise  # the dynamics are deterministic
    fires = (action == game.FIRE) & (state.shot_timer == 0)
    move = (action == game.RIGHT).astype(jnp.int32) - (action == game.LEFT)
    x = jnp.clip(state.x + move, 0, LOWEST)
    shot = jnp.where(fires & (ROW == LOWEST - 1), 1 << x, 0)
    shots = jnp.where(ROW == LOWEST, 0, jnp.roll(state.shots, -1)) | shot
    bombs = jnp.where(ROW == 0, 0, jnp.roll(state.bombs, 1))

    aliens, right, has_landed, moves = _march(state)
    is_hit = (ROW == LOWEST) & ((bombs | state.aliens | aliens) >> x & 1 == 1)
    bombs = bombs | jnp.where(state.alien_timer == 0, _new_bombs(aliens, x), 0)
    alien_timer = jnp.where(state.alien_timer == 0, ENEMY_RELOAD, state.alien_timer)

    wave = jnp.minimum(_popcount(state.aliens), state.interval)
    kills = aliens & shots
    left = aliens & ~kills
    is_cleared = ~jnp.any(left)
    after = SpaceInvadersState(
        x=x,
        right=right,
        interval=state.interval,
        move_timer=jnp.where(moves, wave, state.move_timer) - 1,
        alien_timer=alien_timer - 1,
        shot_timer=jnp.maximum(jnp.where(fires, RELOAD, state.shot_timer) - 1, 0),
        aliens=jnp.where(is_cleared, WAVE, left),
        shots=shots & ~kills,
        bombs=bombs,
    )
    if ramping:
        faster = is_cleared & (state.interval > FASTEST)
        after = after._replace(interval=state.interval - faster)
    return after, _popcount(kills), jnp.any(is_hit) | has_landed


def _march(state: SpaceInvadersState) -> tuple[Array, Array, Array, Array]:
    """Moves the aliens; returns rows, direction, whether they landed, and moved."""
    moves = state.move_timer == 0
    edge = jnp.where(state.right, 1 << LOWEST, 1)
    turns_back = moves & jnp.any(state.aliens & edge != 0)
    shifted_aliens = jnp.where(state.right, state.aliens << 1, state.aliens >> 1)
    aliens = jnp.where(moves, shifted_aliens, state.aliens)
    # Landed aliens wrap around to the top, but the game is over then.
    aliens = jnp.where(turns_back, jnp.roll(state.aliens, 1), aliens)
    has_landed = turns_back & (state.aliens[LOWEST] != 0)
    return aliens, state.right ^ turns_back, has_landed, moves


def _new_bombs(aliens: Array, x: Array) -> Array:
    """The bullet of the lowest alien in the nearest column, as rows.

    Of two equally near columns, the left one is used.
    """
    columns = jax.lax.reduce(aliens, jnp.int32(0), jax.lax.bitwise_or, (0,))
    distance = 2 * jnp.abs(COLUMN - x) + (x < COLUMN)
    distance = jnp.where(columns >> COLUMN & 1 == 1, distance, 2 * game.SIZE)
    bit = 1 << jnp.argmin(distance).astype(jnp.int32)
    lowest = jnp.max(jnp.where(aliens & bit != 0, ROW, -1))
    return jnp.where(lowest == ROW, bit, 0)


def _popcount(rows: Array) -> Array:
    return jnp.sum(jax.lax.population_count(rows))


# For each entry of a row of the board: its bit of aliens, shots and bombs.
_X, _CHANNEL = np.divmod(np.arange(game.SIZE * len(CHANNELS)), len(CHANNELS))
_SHIFT = _X + game.SIZE * np.array([0, 0, 0, 0, 1, 2])[_CHANNEL]


def _paint(state: SpaceInvadersState) -> tuple[Array, list[game.Sprites]]:
    bits = state.aliens | state.shots << game.SIZE | state.bombs << 2 * game.SIZE
    is_visible = jnp.where(state.right, _CHANNEL != 2, _CHANNEL != 3) & (_CHANNEL != 0)
    rows = (bits[:, None] >> _SHIFT & is_visible).astype(bool)
    return rows, [game.Sprites(LOWEST, state.x, 0)]


_ROWS = np.full(game.SIZE, FULL)
_MOST = SpaceInvadersState._make(
    (9, True, SLOWEST, SLOWEST, ENEMY_RELOAD, RELOAD, _ROWS, _ROWS, _ROWS)
)
_ACTIONS = game.NOTHING, game.LEFT, game.RIGHT, game.FIRE
RULES = game.GameRules(CHANNELS, _ACTIONS, _MOST, _begin, _play, _paint)
