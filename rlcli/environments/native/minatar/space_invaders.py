"""SpaceInvaders: shoot down waves of aliens before they land."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Environment, Key, Probability

COLUMN = np.arange(game.SIZE)
ROW = np.arange(game.SIZE)
FULL = 2**game.SIZE - 1  # a row of ten bits; bit x is column x
LOWEST = game.SIZE - 1  # the row where the cannon stands
WAVE = np.array([0b0011111100] * 4 + [0] * 6)
RELOAD, ENEMY_RELOAD = 5, 10  # steps from one shot to the next
SLOWEST, FASTEST = 12, 6  # steps between two moves of a full wave: first, and last

CHANNELS = (
    game.Channel("cannon", drawing.BLUE),
    game.Channel("alien", drawing.GREEN),
    game.Channel("alien_left", "#f2f4f7", 0.3),
    game.Channel("alien_right", "#e3b341", 0.3),
    game.Channel("friendly_bullet", "#8fc7ff", 0.5),
    game.Channel("enemy_bullet", drawing.RED, 0.5),
)


class SpaceInvadersState(NamedTuple):
    """Cannon, aliens and bullets. Rows are numbers whose bit x is column x."""

    x: Array  # int32: the cannon's column
    right: Array  # bool: where the aliens go
    interval: Array  # int32: steps between two moves of a full wave
    move_timer: Array  # int32: steps until the aliens move
    alien_timer: Array  # int32: steps until one of them shoots
    shot_timer: Array  # int32: steps until the cannon may shoot
    aliens: Array  # int32[10]
    shots: Array  # int32[10]: the cannon's, which fly up
    bombs: Array  # int32[10]: the aliens', which fall


@game.register_game("SpaceInvaders")
def space_invaders(
    *,
    sticky_action_prob: Probability = 0.1,
    difficulty_ramping: bool = True,
    minimal_actions: bool = False,
) -> Environment:
    """Plays SpaceInvaders: 1 for each alien that is shot down.

    The aliens go from side to side, and down at either; the fewer, the faster. The
    nearest one shoots. After the last one comes another wave. The game is over when a
    bullet or an alien hits the cannon, or when the aliens have landed.
    Observation: bool `[10, 10, 6]`: row, column, and what is there: cannon, alien,
    alien that goes to the left, to the right, bullet of ours, of theirs. Actions: 0
    nothing, 1 left, 3 right, 5 fire; 2 and 4 do nothing. The rules are MinAtar's (Young
    and Tian, 2019, https://arxiv.org/abs/1903.03176).

    Args:
        sticky_action_prob: how likely the last action is repeated; in an episode's
            first step that is 0 (in MinAtar the last one of the episode before).
        difficulty_ramping: whether a new wave is faster than the one before.
        minimal_actions: whether there are only the four that do something.
    """
    return game.game_environment(
        RULES,
        sticky_action_prob=sticky_action_prob,
        difficulty_ramping=difficulty_ramping,
        minimal_actions=minimal_actions,
    )


def _begin(key: Key) -> SpaceInvadersState:
    del key  # games begin alike
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
    del noise  # nothing is random here
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
    """The aliens, whether they go right, have landed, and moved at all."""
    moves = state.move_timer == 0
    edge = jnp.where(state.right, 1 << LOWEST, 1)
    turns_back = moves & jnp.any(state.aliens & edge != 0)
    shifted_aliens = jnp.where(state.right, state.aliens << 1, state.aliens >> 1)
    aliens = jnp.where(moves, shifted_aliens, state.aliens)
    # Those that have landed come in again from above; but then it is over.
    aliens = jnp.where(turns_back, jnp.roll(state.aliens, 1), aliens)
    return (
        aliens,
        state.right ^ turns_back,
        turns_back & (state.aliens[LOWEST] != 0),
        moves,
    )


def _new_bombs(aliens: Array, x: Array) -> Array:
    """Rows with the bomb of the alien in the nearest column, below all others there.

    Of two columns that are as near the left one counts.
    """
    columns = jax.lax.reduce(aliens, jnp.int32(0), jax.lax.bitwise_or, (0,))
    far = 2 * jnp.abs(COLUMN - x) + (x < COLUMN)
    far = jnp.where(columns >> COLUMN & 1 == 1, far, 2 * game.SIZE)
    bit = 1 << jnp.argmin(far).astype(jnp.int32)
    low = jnp.max(jnp.where(aliens & bit != 0, ROW, -1))
    return jnp.where(low == ROW, bit, 0)


def _popcount(rows: Array) -> Array:
    return jnp.sum(jax.lax.population_count(rows))


# For each entry of a row of the board: which bit of aliens, shots and bombs it shows.
_X, _CHANNEL = np.divmod(np.arange(game.SIZE * len(CHANNELS)), len(CHANNELS))
_SHIFT = _X + game.SIZE * np.array([0, 0, 0, 0, 1, 2])[_CHANNEL]


def _paint(state: SpaceInvadersState) -> tuple[Array, list[game.Sprites]]:
    bits = state.aliens | state.shots << game.SIZE | state.bombs << 2 * game.SIZE
    is_visible = jnp.where(state.right, _CHANNEL != 2, _CHANNEL != 3) & (_CHANNEL != 0)
    rows = (bits[:, None] >> _SHIFT & is_visible).astype(bool)
    return rows, [game.Sprites(LOWEST, state.x, 0)]


_ROWS = np.full(game.SIZE, FULL)
RULES = game.GameRules(
    channels=CHANNELS,
    actions=(game.NOTHING, game.LEFT, game.RIGHT, game.FIRE),
    max_values=SpaceInvadersState(
        9, True, SLOWEST, SLOWEST, ENEMY_RELOAD, RELOAD, _ROWS, _ROWS, _ROWS
    ),
    begin=_begin,
    words=0,
    draw_noise=lambda words: (),
    play=_play,
    paint=_paint,
)
