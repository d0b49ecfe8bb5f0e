"""Seaquest: rescue divers and shoot what attacks, before the oxygen runs out."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.minatar import game
from rlcli.types import Array, Environment, Key, Probability

LANES = 8  # rows 1 to 8, where everybody else swims
ROW = np.arange(1, 1 + LANES)
FULL = 2**game.SIZE - 1  # a row of ten bits
OXYGEN, TENTH, DIVERS = 200, 20, 6  # a full tank, in steps; how many have room
RELOAD, ENEMY_RELOAD = 5, 10  # steps from one shot to the next
DIVER_SPAWN, DIVER_MOVE = 30, 5
SPAWN, MOVE, FASTEST = 20, 5, 2  # of enemies: steps between two at first, and at last
LEVELS = SPAWN - 1  # how often it becomes harder
# An enemy swims off the board within 30 steps of its coming once they come at each
# step, and while they come seldom there are fewer. Of shots and of divers the third
# comes when the first is gone.
ENEMIES, FEW = 30, 2

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
    """Things of one kind; of what is not `there` the rest means nothing."""

    there: Array  # bool[n]
    cell: Array  # int32[n]: see `_cell`
    right: Array  # bool[n]: where they go


class Enemies(NamedTuple):
    """Fish and submarines. All in one row go the same way.

    One comes in a step at most, so no two of one row move into one cell at a time; of
    those in one cell the one that moves next is the oldest.
    """

    at: Swimmers
    timer: Array  # int32[30]: steps until it moves
    submarine: Array  # bool[30]
    reload: Array  # int32[30]: steps until a submarine shoots


class SeaquestState(NamedTuple):
    """Our submarine, and all that is in the sea."""

    x: Array  # int32: the column of its front
    y: Array  # int32: its row; 0 is the surface
    right: Array  # bool: where it points
    oxygen: Array  # int32: steps until it runs out
    divers_aboard: Array  # int32; below 0 after surfacing with six, as in MinAtar
    surfaced: Array  # bool: whether it has not dived since it surfaced
    shot_timer: Array  # int32: steps until it may shoot
    spawn_timer: Array  # int32: steps until an enemy may come
    diver_timer: Array  # int32: steps until a diver comes
    level: Array  # int32: how often it became harder
    place: Array  # int32: where the next enemy is noted
    shots: Swimmers  # [2], the older first
    divers: Swimmers  # [2], the older first
    diver_moves: Array  # int32[2]: steps until they move
    enemies: Enemies
    bullets_left: Array  # int32[8]: of each row, a bit for every column with a bullet
    bullets_right: Array  # int32[8]


class SeaquestNoise(NamedTuple):
    """Which enemy comes, if one does, and which diver."""

    right: Array  # bool: where it goes; it comes from the other side
    submarine: Array  # bool: else it is a fish
    y: Array  # int32 in [1, 8]
    diver_right: Array  # bool
    diver_y: Array  # int32 in [1, 8]


@game.named("Seaquest")
def seaquest(
    *,
    sticky_action_prob: Probability = 0.1,
    difficulty_ramping: bool = True,
    minimal_actions: bool = False,
) -> Environment:
    """Plays Seaquest: 1 for each enemy shot, up to 10 for surfacing with six divers.

    Those 10 are for the oxygen that is left. Surfacing costs a diver and fills the
    tank; with none aboard it ends the game, as do an empty tank and whatever touches
    our submarine: fish, submarines, their bullets. Six divers have room.
    Observation: bool `[10, 10, 10]`: row, column, and what is there: our front, our
    back, our bullet, trail (where a diver or enemy was), enemy bullet, fish,
    submarine, and in the lowest row the gauges of oxygen and divers; diver. Actions: 0
    nothing, 1 left, 2 up, 3 right, 4 down, 5 fire. The rules are MinAtar's (Young and
    Tian, 2019, https://arxiv.org/abs/1903.03176).

    Args:
        sticky_action_prob: how likely the last action is repeated; in an episode's
            first step that is 0 (in MinAtar the last one of the episode before).
        difficulty_ramping: whether enemies are more and faster after each surfacing.
        minimal_actions: does nothing, as all six do something.
    """
    return game.environment(
        RULES,
        sticky_action_prob=sticky_action_prob,
        difficulty_ramping=difficulty_ramping,
        minimal_actions=minimal_actions,
    )


def _begin(key: Key) -> SeaquestState:
    del key  # games begin alike
    nothing = jax.tree.map(
        lambda most: jnp.zeros_like(most, bool if most.dtype == bool else jnp.int32),
        jax.tree.map(np.asarray, RULES.most),
    )
    return nothing._replace(
        x=jnp.int32(5),
        oxygen=jnp.int32(OXYGEN),
        surfaced=jnp.array(True),
        spawn_timer=jnp.int32(SPAWN),
        diver_timer=jnp.int32(DIVER_SPAWN),
    )


def _chance(words: Array) -> SeaquestNoise:
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
    state = _steered(_joined(state, noise), action)
    state, shot = _shots_flown(state)
    state, met, rammed = _enemies_moved(_divers_moved(state))
    state, hit = _bullets_flown(state)
    state, rescued, choked = _breathed(state, ramping)
    state = state._replace(
        spawn_timer=jnp.maximum(state.spawn_timer - 1, 0),
        diver_timer=jnp.maximum(state.diver_timer - 1, 0),
        shot_timer=jnp.maximum(state.shot_timer - 1, 0),
    )
    return state, shot + rammed + rescued, met | hit | choked


def _move_speed(state: SeaquestState) -> Array:
    return jnp.maximum(MOVE - (state.level >> 1), FASTEST)


def _joined(state: SeaquestState, noise: SeaquestNoise) -> SeaquestState:
    """With a new enemy and a new diver, if they are due."""
    at = state.enemies.at
    opposed = at.there & (at.cell >> 4 == noise.y) & (at.right != noise.right)
    due = state.spawn_timer == 0
    new = due & ~jnp.any(opposed)
    place = state.place + new
    entrance = _cell(noise.y, jnp.where(noise.right, 0, 9))
    comer = Swimmers(new, entrance, noise.right)
    enemy = Enemies(comer, _move_speed(state), noise.submarine, ENEMY_RELOAD)
    here = new & (np.arange(ENEMIES) == state.place)
    spawn_speed = jnp.maximum(SPAWN - state.level, 1)

    diver_due = state.diver_timer == 0
    entrance = _cell(noise.diver_y, jnp.where(noise.diver_right, 0, 9))
    diver = Swimmers(diver_due, entrance, noise.diver_right), DIVER_MOVE
    before = state.divers, state.diver_moves
    divers, moves = _followed(diver_due, before, diver)
    return state._replace(
        enemies=jax.tree.map(partial(jnp.where, here), enemy, state.enemies),
        place=jnp.where(place == ENEMIES, 0, place),
        spawn_timer=jnp.where(due, spawn_speed, state.spawn_timer),
        divers=divers,
        diver_moves=moves,
        diver_timer=jnp.where(diver_due, DIVER_SPAWN, state.diver_timer),
    )


def _steered(state: SeaquestState, action: Array) -> SeaquestState:
    """After our action: fired, or moved."""
    fires = (action == game.FIRE) & (state.shot_timer == 0)
    shot = Swimmers(fires, _cell(state.y, state.x), state.right)
    left, right = action == game.LEFT, action == game.RIGHT
    down = (action == game.DOWN).astype(jnp.int32) - (action == game.UP)
    return state._replace(
        shots=_followed(fires, state.shots, shot),
        shot_timer=jnp.where(fires, RELOAD, state.shot_timer),
        x=jnp.clip(state.x + right - left, 0, 9),
        y=jnp.clip(state.y + down, 0, 8),
        right=(state.right | right) & ~left,
    )


def _shots_flown(state: SeaquestState) -> tuple[SeaquestState, Array]:
    """Our shots move, the newest first; each hits one enemy, a fish if there is one."""
    enemies, shots = state.enemies, state.shots
    at, there = enemies.at, enemies.at.there
    order = enemies.timer + 8 * enemies.submarine
    cell = shots.cell + jnp.where(shots.there, game.toward(shots.right), 0)
    flying = []
    for i in reversed(range(FEW)):
        flies = shots.there[i] & _inside(cell[i])
        reached = there & (at.cell == cell[i]) & flies
        first = jnp.min(jnp.where(reached, order, 16))
        there = there & ~(reached & (order == first))
        flying.insert(0, flies & (first == 16))
    flies = jnp.stack(flying)
    shots = shots._replace(there=flies, cell=jnp.where(flies, cell, 0))
    enemies = enemies._replace(at=at._replace(there=there))
    return state._replace(shots=shots, enemies=enemies), jnp.sum(at.there ^ there)


def _divers_moved(state: SeaquestState) -> SeaquestState:
    """Divers move, the newest first, and come aboard where they meet us."""
    divers, aboard = state.divers, state.divers_aboard
    ours = _cell(state.y, state.x)
    moves = divers.there & (state.diver_moves == 0)
    timer = jnp.where(moves, DIVER_MOVE, state.diver_moves - divers.there)
    cell = divers.cell + jnp.where(moves, game.toward(divers.right), 0)
    meets = divers.there & ((divers.cell == ours) | (cell == ours))
    stays = divers.there & _inside(cell)
    there = []
    for i in reversed(range(FEW)):
        joins = meets[i] & (aboard < DIVERS)
        aboard = aboard + joins
        there.insert(0, stays[i] & ~joins)
    divers = divers._replace(there=jnp.stack(there), cell=cell)
    return state._replace(divers=divers, diver_moves=timer, divers_aboard=aboard)


def _enemies_moved(state: SeaquestState) -> tuple[SeaquestState, Array, Array]:
    """Enemies move, into our shots or into us, and shoot.

    Returns the state, whether one met us, and how many our shots hit.
    """
    enemies, shots = state.enemies, state.shots
    at, ours = enemies.at, _cell(state.y, state.x)
    moves = at.there & (enemies.timer == 0)
    cell = at.cell + jnp.where(moves, game.toward(at.right), 0)
    there = at.there & _inside(cell)
    met = at.there & ((at.cell == ours) | (cell == ours))

    # Where two of our shots share a cell the older one hits.
    able = left = moves & there & (cell != ours)
    flying = []
    for i in range(FEW):
        hit = left & (cell == shots.cell[i]) & shots.there[i]
        left = left & ~hit
        flying.append(shots.there[i] & ~jnp.any(hit))
    struck = able & ~left

    ready = enemies.reload == 0
    fires = there & enemies.submarine & ready  # even when struck
    bit = jnp.where(fires, 1 << (cell & 15) + game.SIZE * at.right, 0)
    new = jnp.where(cell >> 4 == ROW[:, None], bit, 0)
    new = jax.lax.reduce(new, jnp.int32(0), jax.lax.bitwise_or, (1,))
    after = state._replace(
        shots=shots._replace(there=jnp.stack(flying)),
        enemies=Enemies(
            at=at._replace(there=there & ~struck, cell=cell),
            timer=jnp.where(moves, _move_speed(state), enemies.timer - at.there),
            submarine=enemies.submarine,
            reload=jnp.where(ready, ENEMY_RELOAD, enemies.reload - at.there),
        ),
        bullets_left=state.bullets_left | new & FULL,
        bullets_right=state.bullets_right | new >> game.SIZE,
    )
    return after, jnp.any(met), jnp.sum(struck)


def _bullets_flown(state: SeaquestState) -> tuple[SeaquestState, Array]:
    """The enemies' bullets move; whether one hit us."""
    left, right = state.bullets_left >> 1, state.bullets_right << 1 & FULL
    passed = state.bullets_left | state.bullets_right | left | right
    hit = (state.y == ROW) & (passed >> state.x & 1 == 1)
    return state._replace(bullets_left=left, bullets_right=right), jnp.any(hit)


def _breathed(
    state: SeaquestState, ramping: bool
) -> tuple[SeaquestState, Array, Array]:
    """Oxygen is used up or, at the surface, filled up.

    Returns the state, the reward for divers, and whether that was the end.
    """
    down = state.y > 0
    up = ~down & ~state.surfaced
    surfaces = up & (state.divers_aboard != 0)
    full = surfaces & (state.divers_aboard == DIVERS)
    used = jnp.maximum(state.oxygen - down, 0)
    harder = surfaces & (state.level < LEVELS) & ramping
    after = state._replace(
        oxygen=jnp.where(surfaces, OXYGEN, used),
        divers_aboard=jnp.where(full, 0, state.divers_aboard) - surfaces,
        surfaced=~down & (state.surfaced | surfaces),
        level=state.level + harder,
    )
    reward = jnp.where(full, jax.lax.div(state.oxygen, TENTH), 0)
    return after, reward, (state.oxygen == 0) | (up & ~surfaces)


def _followed(when: Array, old: Any, new: Any) -> Any:
    """With `new` as the last of two, and the last of `old` as the first."""
    return jax.tree.map(
        lambda one, both: jnp.where(when, jnp.stack([both[1], one]), both), new, old
    )


def _cell(y: Array, x: Array) -> Array:
    """A row and a column in one number, with room for a step off the board."""
    return y << 4 | x


def _inside(cell: Array) -> Array:
    return cell & 15 < game.SIZE


# For each entry of a row of the board: its column and channel.
_X, _CHANNEL = np.divmod(np.arange(game.SIZE * len(CHANNELS)), len(CHANNELS))


def _paint(state: SeaquestState) -> tuple[Array, list[game.Things]]:
    rows = state.bullets_left | state.bullets_right
    bullets = rows[:, None] >> _X & (_CHANNEL == 4)
    air = (_CHANNEL == 7) & (jax.lax.div(state.oxygen, TENTH) > _X)
    full = (_CHANNEL == 8) & (9 - state.divers_aboard <= _X) & (_X < 9)
    board = [jnp.zeros_like(air)[None], bullets.astype(bool), (air | full)[None]]
    back = np.arange(2)  # 0: the front of us
    ours = state.x - back * game.toward(state.right)
    shots = state.shots
    return jnp.concatenate(board), [
        game.Things(state.y, ours, back),
        game.Things(shots.cell >> 4, shots.cell & 15, 2, shots.there),
        _followed_by_trails(state.divers, 9),
        _followed_by_trails(state.enemies.at, jnp.where(state.enemies.submarine, 6, 5)),
    ]


def _followed_by_trails(at: Swimmers, channel: Array | int) -> game.Things:
    trail = np.array([[0], [1]])  # first all of them, then what they leave behind
    cell = at.cell - trail * game.toward(at.right)
    kind = jnp.where(trail == 1, 3, channel)
    return game.Things(cell >> 4, cell & 15, kind, at.there & _inside(cell))


def _most(number: int) -> Swimmers:
    yes = np.ones(number, bool)
    return Swimmers(yes, np.full(number, 2**8 - 1), yes)


RULES = game.Rules(
    channels=CHANNELS,
    actions=game.ALL,
    most=SeaquestState(
        x=9,
        y=8,
        right=True,
        oxygen=OXYGEN,
        divers_aboard=np.uint32(2**32 - 1),
        surfaced=True,
        shot_timer=RELOAD,
        spawn_timer=SPAWN,
        diver_timer=DIVER_SPAWN,
        level=LEVELS,
        place=ENEMIES - 1,
        shots=_most(FEW),
        divers=_most(FEW),
        diver_moves=np.full(FEW, DIVER_MOVE),
        enemies=Enemies(
            _most(ENEMIES),
            *(np.full(ENEMIES, each) for each in (MOVE, True, ENEMY_RELOAD)),
        ),
        bullets_left=np.full(LANES, FULL),
        bullets_right=np.full(LANES, FULL),
    ),
    begin=_begin,
    words=1,
    chance=_chance,
    play=_play,
    paint=_paint,
)
