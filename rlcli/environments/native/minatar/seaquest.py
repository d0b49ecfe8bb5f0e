"""Seaquest: rescue divers and shoot enemies before the oxygen runs out."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Key

LANES = 8  # rows 1 to 8, with divers and enemies
ROW = np.arange(1, 1 + LANES)
FULL = 2**game.SIZE - 1  # a row of ten bits
OXYGEN, TENTH = 200, 20  # a full tank, and a tenth of it, in steps
DIVERS = 6  # the capacity of the submarine
RELOAD, ENEMY_RELOAD = 5, 10  # steps between two shots
DIVER_SPAWN, DIVER_MOVE = 30, 5
# Of enemies: initial steps between two of them and between two moves; the fewest.
SPAWN, MOVE, FASTEST = 20, 5, 2
LEVELS = SPAWN - 1  # the number of increases in difficulty
# At the highest level one enemy appears per step, and leaves the board within 30 steps;
# at lower levels there are fewer. The first of three shots or divers is gone before the
# third appears.
ENEMIES, MAX_SHOTS = 30, 2

CHANNELS = (
    game.Channel("sub_front", drawing.BLUE),
    game.Channel("sub_back", "#8fb0dd", 0.7),
    game.Channel("friendly_bullet", "#8fc7ff", 0.4),
    game.Channel("trail", drawing.GREY, 0.3),
    game.Channel("enemy_bullet", "#f08a84", 0.4),
    game.Channel("enemy_fish", drawing.GREEN, 0.8),
    game.Channel("enemy_sub", drawing.RED, 0.85),
    game.Channel("oxygen_gauge", "#5fb7c4"),
    game.Channel("diver_gauge", "#b98a2f"),
    game.Channel("diver", "#e3b341", 0.6),
)


class Swimmers(NamedTuple):
    """Objects of one kind; where `alive` is false, the other fields are meaningless."""

    alive: Array  # bool[n]
    cell: Array  # int32[n]: see `_cell`
    right: Array  # bool[n]: whether it moves right


class Enemies(NamedTuple):
    """Fish and submarines. All enemies in one row move in the same direction.

    At most one enemy appears per step, so two enemies of one row never enter a cell in
    the same step; of the enemies in one cell, the oldest is the one that moves next.
    """

    swimmers: Swimmers
    timer: Array  # int32[30]: steps until it moves
    submarine: Array  # bool[30]
    reload: Array  # int32[30]: steps until a submarine shoots


class SeaquestState(NamedTuple):
    """The agent's submarine, and everything else in the sea."""

    x: Array  # int32: the column of its front
    y: Array  # int32: its row; 0 is the surface
    right: Array  # bool: whether it points right
    oxygen: Array  # int32: steps until it runs out
    divers_aboard: Array  # int32; negative after surfacing with six, as in MinAtar
    is_surfaced: Array  # bool: whether it stays at the surface after surfacing
    shot_timer: Array  # int32: steps until it may shoot
    spawn_timer: Array  # int32: steps until an enemy may come
    diver_timer: Array  # int32: steps until a diver comes
    level: Array  # int32: the number of increases in difficulty
    place: Array  # int32: the index of the next enemy in `enemies`
    shots: Swimmers  # [2], the older first
    divers: Swimmers  # [2], the older first
    diver_moves: Array  # int32[2]: steps until each diver moves
    enemies: Enemies
    bullets_left: Array  # int32[8]: for each row, one bit per column
    bullets_right: Array  # int32[8]


class SeaquestNoise(NamedTuple):
    """The next enemy and the next diver."""

    right: Array  # bool: whether it enters from the left and moves right
    submarine: Array  # bool: a submarine or a fish
    y: Array  # int32 in [1, 8]
    diver_right: Array  # bool
    diver_y: Array  # int32 in [1, 8]


@game.register_game(
    "Seaquest",
    ramping="whether enemies appear more often and move faster after each surfacing.",
    minimal="has no effect, since all six actions have one.",
)
def seaquest() -> game.GameRules:
    """Plays Seaquest: reward 1 per enemy, up to 10 for surfacing with six divers.

    Surfacing with six divers pays the remaining oxygen, in tenths of the tank.
    Surfacing costs one diver and refills the tank. The game is over when the submarine
    surfaces without divers, runs out of oxygen, or touches a fish, a submarine or an
    enemy bullet. The submarine holds six divers.
    Observation: bool `[10, 10, 10]`: row, column, and channel: front of the agent's
    submarine, its back, its bullet, trail (the previous position of a diver or enemy),
    enemy bullet, fish, enemy submarine; oxygen gauge and diver gauge, in the lowest
    row; diver. Actions: 0 nothing, 1 left, 2 up, 3 right, 4 down, 5 fire. The rules are
    those of MinAtar (Young and Tian, 2019, https://arxiv.org/abs/1903.03176).
    """
    return RULES


def _begin(key: Key) -> SeaquestState:
    del key  # the initial state is fixed

    def zeros_like(most: Any) -> Array:
        is_bool = np.asarray(most).dtype == bool
        return jnp.zeros(np.shape(most), bool if is_bool else jnp.int32)

    return jax.tree.map(zeros_like, _MOST)._replace(
        x=jnp.int32(5),
        oxygen=jnp.int32(OXYGEN),
        is_surfaced=jnp.array(True),
        spawn_timer=jnp.int32(SPAWN),
        diver_timer=jnp.int32(DIVER_SPAWN),
    )


def _noise_from_words(words: Array) -> SeaquestNoise:
    word = words[0]
    kind, rows = word % 12, word // 12 % 64
    return SeaquestNoise(
        right=kind < 6,
        submarine=kind % 3 == 0,
        y=1 + (rows % 8).astype(jnp.int32),
        diver_right=kind // 3 % 2 == 0,
        diver_y=1 + (rows // 8).astype(jnp.int32),
    )


def _play(
    state: SeaquestState, action: Array, noise: SeaquestNoise, ramping: bool
) -> tuple[SeaquestState, Array, Array]:
    state = _steer(_spawn(state, noise), action)
    state, shot = _move_shots(state)
    state, is_touched, hits = _move_enemies(_move_divers(state))
    state, hit = _move_bullets(state)
    state, reward, terminated = _update_oxygen(state, ramping)
    state = state._replace(
        spawn_timer=jnp.maximum(state.spawn_timer - 1, 0),
        diver_timer=jnp.maximum(state.diver_timer - 1, 0),
        shot_timer=jnp.maximum(state.shot_timer - 1, 0),
    )
    return state, shot + hits + reward, is_touched | hit | terminated


def _move_speed(state: SeaquestState) -> Array:
    return jnp.maximum(MOVE - (state.level >> 1), FASTEST)


def _spawn(state: SeaquestState, noise: SeaquestNoise) -> SeaquestState:
    """Adds a new enemy and a new diver if they are due."""
    swimmers = state.enemies.swimmers
    is_opposed = (
        swimmers.alive
        & (swimmers.cell >> 4 == noise.y)
        & (swimmers.right != noise.right)
    )
    due = state.spawn_timer == 0
    new = due & ~jnp.any(is_opposed)
    place = state.place + new
    entrance = _cell(noise.y, jnp.where(noise.right, 0, 9))
    newcomer = Swimmers(new, entrance, noise.right)
    enemy = Enemies(
        newcomer, _move_speed(state), noise.submarine, jnp.asarray(ENEMY_RELOAD)
    )
    is_slot = new & (np.arange(ENEMIES) == state.place)
    spawn_speed = jnp.maximum(SPAWN - state.level, 1)

    diver_due = state.diver_timer == 0
    entrance = _cell(noise.diver_y, jnp.where(noise.diver_right, 0, 9))
    diver = Swimmers(diver_due, entrance, noise.diver_right), DIVER_MOVE
    old_divers = state.divers, state.diver_moves
    divers, moves = _push(diver_due, old_divers, diver)
    return state._replace(
        enemies=jax.tree.map(partial(jnp.where, is_slot), enemy, state.enemies),
        place=jnp.where(place == ENEMIES, 0, place),
        spawn_timer=jnp.where(due, spawn_speed, state.spawn_timer),
        divers=divers,
        diver_moves=moves,
        diver_timer=jnp.where(diver_due, DIVER_SPAWN, state.diver_timer),
    )


def _steer(state: SeaquestState, action: Array) -> SeaquestState:
    """Applies the action: fires or moves."""
    fires = (action == game.FIRE) & (state.shot_timer == 0)
    shot = Swimmers(fires, _cell(state.y, state.x), state.right)
    left, right = action == game.LEFT, action == game.RIGHT
    down = (action == game.DOWN).astype(jnp.int32) - (action == game.UP)
    return state._replace(
        shots=_push(fires, state.shots, shot),
        shot_timer=jnp.where(fires, RELOAD, state.shot_timer),
        x=jnp.clip(state.x + right - left, 0, 9),
        y=jnp.clip(state.y + down, 0, 8),
        right=(state.right | right) & ~left,
    )


def _move_shots(state: SeaquestState) -> tuple[SeaquestState, Array]:
    """Moves the agent's shots, newest first; each hits one enemy, preferably a fish."""
    enemies, shots = state.enemies, state.shots
    swimmers, alive = enemies.swimmers, enemies.swimmers.alive
    order = enemies.timer + 8 * enemies.submarine
    cell = shots.cell + jnp.where(shots.alive, game.x_step(shots.right), 0)
    flying = []
    for i in reversed(range(MAX_SHOTS)):
        flies = shots.alive[i] & _is_inside(cell[i])
        is_hit = alive & (swimmers.cell == cell[i]) & flies
        first = jnp.min(jnp.where(is_hit, order, 16))
        alive = alive & ~(is_hit & (order == first))
        flying.insert(0, flies & (first == 16))
    flies = jnp.stack(flying)
    shots = shots._replace(alive=flies, cell=jnp.where(flies, cell, 0))
    enemies = enemies._replace(swimmers=swimmers._replace(alive=alive))
    return state._replace(shots=shots, enemies=enemies), jnp.sum(swimmers.alive ^ alive)


def _move_divers(state: SeaquestState) -> SeaquestState:
    """Moves the divers, newest first; a diver that meets the submarine comes aboard."""
    divers, aboard = state.divers, state.divers_aboard
    own_cell = _cell(state.y, state.x)
    moves = divers.alive & (state.diver_moves == 0)
    timer = jnp.where(moves, DIVER_MOVE, state.diver_moves - divers.alive)
    cell = divers.cell + jnp.where(moves, game.x_step(divers.right), 0)
    meets = divers.alive & ((divers.cell == own_cell) | (cell == own_cell))
    stays = divers.alive & _is_inside(cell)
    alive = []
    for i in reversed(range(MAX_SHOTS)):
        joins = meets[i] & (aboard < DIVERS)
        aboard = aboard + joins
        alive.insert(0, stays[i] & ~joins)
    divers = divers._replace(alive=jnp.stack(alive), cell=cell)
    return state._replace(divers=divers, diver_moves=timer, divers_aboard=aboard)


def _move_enemies(state: SeaquestState) -> tuple[SeaquestState, Array, Array]:
    """Moves the enemies, which may hit shots or the submarine, and fires their guns.

    Returns the state, whether an enemy met the submarine, and the number of hits.
    """
    enemies, shots = state.enemies, state.shots
    swimmers, own_cell = enemies.swimmers, _cell(state.y, state.x)
    moves = swimmers.alive & (enemies.timer == 0)
    cell = swimmers.cell + jnp.where(moves, game.x_step(swimmers.right), 0)
    alive = swimmers.alive & _is_inside(cell)
    is_touched = swimmers.alive & ((swimmers.cell == own_cell) | (cell == own_cell))

    # If two shots share a cell, the older one hits.
    targets = remaining = moves & alive & (cell != own_cell)
    flying = []
    for i in range(MAX_SHOTS):
        hit = remaining & (cell == shots.cell[i]) & shots.alive[i]
        remaining = remaining & ~hit
        flying.append(shots.alive[i] & ~jnp.any(hit))
    struck = targets & ~remaining

    ready = enemies.reload == 0
    fires = alive & enemies.submarine & ready  # even if hit in this step
    bit = jnp.where(fires, 1 << (cell & 15) + game.SIZE * swimmers.right, 0)
    new = jnp.where(cell >> 4 == ROW[:, None], bit, 0)
    new = jax.lax.reduce(new, jnp.int32(0), jax.lax.bitwise_or, (1,))
    after = state._replace(
        shots=shots._replace(alive=jnp.stack(flying)),
        enemies=Enemies(
            swimmers=swimmers._replace(alive=alive & ~struck, cell=cell),
            timer=jnp.where(moves, _move_speed(state), enemies.timer - swimmers.alive),
            submarine=enemies.submarine,
            reload=jnp.where(ready, ENEMY_RELOAD, enemies.reload - swimmers.alive),
        ),
        bullets_left=state.bullets_left | new & FULL,
        bullets_right=state.bullets_right | new >> game.SIZE,
    )
    return after, jnp.any(is_touched), jnp.sum(struck)


def _move_bullets(state: SeaquestState) -> tuple[SeaquestState, Array]:
    """Moves the enemy bullets; returns the state, and whether one hit the submarine."""
    left, right = state.bullets_left >> 1, state.bullets_right << 1 & FULL
    bullet_paths = state.bullets_left | state.bullets_right | left | right
    hit = (state.y == ROW) & (bullet_paths >> state.x & 1 == 1)
    return state._replace(bullets_left=left, bullets_right=right), jnp.any(hit)


def _update_oxygen(
    state: SeaquestState, ramping: bool
) -> tuple[SeaquestState, Array, Array]:
    """Consumes oxygen or, at the surface, refills it.

    Returns the state, the reward for divers, and whether the game is over.
    """
    down = state.y > 0
    up = ~down & ~state.is_surfaced
    surfaces = up & (state.divers_aboard != 0)
    full = surfaces & (state.divers_aboard == DIVERS)
    oxygen_left = jnp.maximum(state.oxygen - down, 0)
    harder = surfaces & (state.level < LEVELS) & ramping
    after = state._replace(
        oxygen=jnp.where(surfaces, OXYGEN, oxygen_left),
        divers_aboard=jnp.where(full, 0, state.divers_aboard) - surfaces,
        is_surfaced=~down & (state.is_surfaced | surfaces),
        level=state.level + harder,
    )
    reward = jnp.where(full, jax.lax.div(state.oxygen, TENTH), 0)
    return after, reward, (state.oxygen == 0) | (up & ~surfaces)


def _push(condition: Array, old: Any, new: Any) -> Any:
    """If `condition`: drops the first of the two `old` entries and appends `new`."""
    return jax.tree.map(
        lambda item, pair: jnp.where(condition, jnp.stack([pair[1], item]), pair),
        new,
        old,
    )


def _cell(y: Array, x: Array) -> Array:
    """Encodes a row and a column in one integer, with room for a step off the board."""
    return y << 4 | x


def _is_inside(cell: Array) -> Array:
    return cell & 15 < game.SIZE


# For each entry of a row of the board: its column and channel.
_X, _CHANNEL = np.divmod(np.arange(game.SIZE * len(CHANNELS)), len(CHANNELS))


def _paint(state: SeaquestState) -> tuple[Array, list[game.Sprites]]:
    rows = state.bullets_left | state.bullets_right
    bullets = rows[:, None] >> _X & (_CHANNEL == 4)
    air = (_CHANNEL == 7) & (jax.lax.div(state.oxygen, TENTH) > _X)
    full = (_CHANNEL == 8) & (9 - state.divers_aboard <= _X) & (_X < 9)
    board = [jnp.zeros_like(air)[None], bullets.astype(bool), (air | full)[None]]
    back = np.arange(2)  # 0: the front of the agent's submarine
    own_x = state.x - back * game.x_step(state.right)
    shots = state.shots
    return jnp.concatenate(board), [
        game.Sprites(state.y, own_x, back),
        game.Sprites(shots.cell >> 4, shots.cell & 15, 2, shots.alive),
        _with_trails(state.divers, 9),
        _with_trails(state.enemies.swimmers, jnp.where(state.enemies.submarine, 6, 5)),
    ]


def _with_trails(swimmers: Swimmers, channel: Array | int) -> game.Sprites:
    trail = np.array([[0], [1]])  # the swimmers, then their trails
    cell = swimmers.cell - trail * game.x_step(swimmers.right)
    kind = jnp.where(trail == 1, 3, channel)
    return game.Sprites(cell >> 4, cell & 15, kind, swimmers.alive & _is_inside(cell))


def _max_swimmers(number: int) -> Swimmers:
    ones = np.ones(number, bool)
    return Swimmers(ones, np.full(number, 2**8 - 1), ones)


_Maximum: Any = SeaquestState  # with one number per field instead of an array
_MOST = _Maximum(
    x=9,
    y=8,
    right=True,
    oxygen=OXYGEN,
    divers_aboard=np.uint32(2**32 - 1),
    is_surfaced=True,
    shot_timer=RELOAD,
    spawn_timer=SPAWN,
    diver_timer=DIVER_SPAWN,
    level=LEVELS,
    place=ENEMIES - 1,
    shots=_max_swimmers(MAX_SHOTS),
    divers=_max_swimmers(MAX_SHOTS),
    diver_moves=np.full(MAX_SHOTS, DIVER_MOVE),
    enemies=Enemies(
        _max_swimmers(ENEMIES),
        *(np.full(ENEMIES, value) for value in (MOVE, True, ENEMY_RELOAD)),
    ),
    bullets_left=np.full(LANES, FULL),
    bullets_right=np.full(LANES, FULL),
)
RULES = game.GameRules(
    CHANNELS, game.ALL_ACTIONS, _MOST, _begin, _play, _paint, 1, _noise_from_words
)
