"""Seaquest, compared with MinAtar."""

import collections

import jax
import numpy as np
import pytest
from scipy import stats

from rlcli.environments.native.minatar import game, seaquest
from rlcli.environments.native.minatar.seaquest import Enemies, SeaquestState, Swimmers

LANES = range(1, 9)


def swimmers(things, size):
    """Packs a list of objects at the end of the arrays, newest last."""
    rows = [(True, 16 * y + x, right) for x, y, right, *_ in things]
    rows = [(False, 0, False)] * (size - len(rows)) + rows
    alive, cell, right = zip(*rows, strict=True)
    return Swimmers(np.array(alive), np.array(cell), np.array(right, bool))


def fill_array(values, size):
    return np.array([0] * (size - len(values)) + list(values))


def bullet_bits(bullets, *, right):
    """For each row, the bits of the bullets that move in one direction."""
    rows = np.zeros(8, int)
    for x, y, way in bullets:
        if way == right:
            rows[y - 1] |= 1 << x
    return rows


def state_of(env):
    assert env.e_spawn_speed == max(1, 20 - env.ramp_index)
    assert env.move_speed == max(2, 5 - env.ramp_index // 2)
    enemies = env.e_fish + env.e_subs
    kinds = [0] * len(env.e_fish) + [1] * len(env.e_subs)
    reloads = [0] * len(env.e_fish) + [sub[4] for sub in env.e_subs]
    return SeaquestState(
        x=env.sub_x,
        y=env.sub_y,
        right=env.sub_or,
        oxygen=max(env.oxygen, 0),  # −1 at the end
        divers_aboard=env.diver_count,
        is_surfaced=env.surface,
        shot_timer=env.shot_timer,
        spawn_timer=env.e_spawn_timer,
        diver_timer=env.d_spawn_timer,
        level=env.ramp_index,
        place=0,  # arbitrary: the enemies are packed at the end
        shots=swimmers(env.f_bullets, 2),
        divers=swimmers(env.divers, 2),
        diver_moves=fill_array([diver[3] for diver in env.divers], 2),
        enemies=Enemies(
            swimmers(enemies, 30),
            fill_array([enemy[3] for enemy in enemies], 30),
            fill_array(kinds, 30).astype(bool),
            fill_array(reloads, 30),
        ),
        bullets_left=bullet_bits(env.e_bullets, right=False),
        bullets_right=bullet_bits(env.e_bullets, right=True),
    )


def calls_of(env, action, noise):
    calls = []
    if env.e_spawn_timer == 0:
        calls.append(("rand", 0.4 if noise.right else 0.6))
        calls.append(("rand", 0.3 if noise.submarine else 0.4))
        calls.append(("randint", int(noise.y)))
    if env.d_spawn_timer == 0:
        calls.append(("rand", 0.4 if noise.diver_right else 0.6))
        calls.append(("randint", int(noise.diver_y)))
    return calls


def comparable_state(state):
    """A state without the order of its objects and without meaningless values."""
    enemies, divers = state.enemies, state.divers
    kinds = enemies.submarine * (50 + enemies.reload)
    return state._replace(
        place=0,
        shots=in_order(code(state.shots, 0)),
        divers=in_order(code(divers, state.diver_moves)),
        diver_moves=0,
        enemies=np.sort(code(enemies.swimmers, 100 * enemies.timer + kinds), axis=-1),
    )


def code(at, rest):
    """Encodes each object as one number: 0 if not alive."""
    return at.alive * (1 + 1000 * (2 * at.cell + at.right) + rest)


def in_order(pair):
    """Sorts a pair: the older before the newer, empty entries first."""
    return np.where(pair[..., 1:] == 0, pair[..., ::-1], pair)


def mutate(rng, env):
    """Sets any position and level, often crowded, but no state the rules exclude."""
    env.sub_y = int(rng.choice([0, 1, rng.integers(9)]))
    env.sub_x = int(rng.integers(10))
    env.sub_or = bool(env.sub_x == 9 or (env.sub_x > 0 and rng.integers(2)))
    env.surface = env.sub_y == 0
    env.oxygen = int(rng.choice([0, 1, 2, 19, 20, 200, rng.integers(201)]))
    env.diver_count = int(rng.choice([-2, -1, 0, 5, 6, 6, rng.integers(7)]))
    env.ramp_index = int(rng.choice([18, 19, rng.integers(20)]))
    env.e_spawn_speed = max(1, 20 - env.ramp_index)
    env.move_speed = max(2, 5 - env.ramp_index // 2)
    env.e_spawn_timer = int(rng.choice([0, rng.integers(env.e_spawn_speed)]))
    env.d_spawn_timer = int(rng.choice([0, rng.integers(30)]))
    env.shot_timer = int(rng.choice([0, rng.integers(5)]))
    place_enemies(rng, env)
    place_others(rng, env)


def place_enemies(rng, env):
    """Up to 29 enemies: those of a row have one direction and different moves."""
    ways = rng.integers(2, size=9).astype(bool)
    crowd = [[env.sub_y]] * 3 if env.sub_y else []
    rows = [*rng.integers(1, 9, size=rng.choice([0, 8, 26])), *np.ravel(crowd)]
    near = [env.sub_x, max(env.sub_x - 1, 0), min(env.sub_x + 1, 9)]
    moves = {
        (int(rng.choice([0, rng.integers(6)])), int(rng.choice([*near, *range(10)])), y)
        for y in map(int, rows)
    }
    for timer, x, y in sorted(moves):  # the older one moves first
        if rng.random() < 0.4:
            reload = int(rng.choice([0, rng.integers(11)]))
            env.e_subs.append([x, y, bool(ways[y]), timer, reload])
        else:
            env.e_fish.append([x, y, bool(ways[y]), timer])


def place_others(rng, env):
    """Shots that will hit, divers, and bullets near the submarine."""
    targets = [*env.e_fish, *env.e_subs, [int(rng.integers(10)), 0]]
    shots = set()
    for _ in range(int(rng.integers(2 if env.shot_timer == 0 else 3))):
        x, y, *_ = targets[rng.integers(len(targets))]
        right = bool(rng.integers(2))
        x += rng.choice([0, -1 if right else 1, 1])
        if 0 <= x <= 9 and (x, y) != (env.sub_x, env.sub_y):
            shots.add((int(x), y, right))
    order = rng.permutation(len(shots))
    env.f_bullets = [list(sorted(shots)[i]) for i in order]
    for _ in range(int(rng.integers(2 if env.d_spawn_timer == 0 else 3))):
        x = int(np.clip(env.sub_x + rng.integers(-1, 2), 0, 9))
        timer = int(rng.choice([0, rng.integers(6)]))
        env.divers.append([x, max(env.sub_y, 1), bool(rng.integers(2)), timer])
    for _ in range(int(rng.choice([0, 1, 6]))):
        x, y = int(rng.integers(10)), int(rng.choice([max(env.sub_y, 1), *LANES]))
        bullet = [x, y, bool(rng.integers(2))]
        if rng.random() < 0.9 or y != env.sub_y:
            env.e_bullets.append(bullet)


def pair_of(pair_class, **options):
    return pair_class(
        "seaquest",
        seaquest.seaquest,
        seaquest.RULES,
        state_of,
        calls_of,
        comparable_state,
        **options,
    )


@pytest.fixture(scope="module")
def pair(pair_class):
    return pair_of(pair_class)


@pytest.mark.slow  # single steps match, from any state
def test_random_play_matches_minatar(pair):
    before, _, _, _, (_, reward, terminal) = pair.check_play(range(5), 400)
    assert reward.sum() > 5
    assert terminal.sum() > 10
    assert before.game.divers.alive.any()


@pytest.mark.slow
def test_a_step_matches_minatar_from_unvisited_states(pair):
    pair.mutated(mutate, 0, 6000)
    before, _, _, after, (_, reward, terminal) = pair.check()
    a, b = before.game, after.game
    assert 500 < terminal.sum() < 5000
    assert np.sum((reward > 0) & (reward < 3)) > 500
    assert reward.max() >= 10
    assert np.sum(a.enemies.swimmers.alive.sum(axis=1) > 20) > 200
    assert np.sum((a.oxygen == 0) & terminal) > 500
    surfaced = b.is_surfaced & (a.y == 1)
    assert np.sum(surfaced & (a.divers_aboard == 6) & (b.divers_aboard == -1)) > 30
    assert np.sum(surfaced & (a.divers_aboard < 0)) > 30
    assert np.sum(~surfaced & (b.y == 0) & (a.y == 1) & (b.divers_aboard == 0)) > 10
    assert np.sum(b.level > a.level) > 50
    assert np.sum(surfaced & (a.level == 19)) > 10
    assert np.sum(b.divers_aboard > a.divers_aboard) > 100
    assert np.any((a.divers_aboard == 5) & a.divers.alive.all(axis=1))


@pytest.mark.slow
def test_a_crowded_sea_matches_minatar_step_by_step(pair):
    pair.restart(np.random.default_rng(0))
    env = pair.reference.env
    env.ramp_index, env.e_spawn_speed, env.move_speed = 19, 1, 2
    env.sub_x, env.e_spawn_timer = 5, 1
    rng, steps = np.random.default_rng(1), 400
    noises = pair.noises(1, steps)
    for t in range(steps):
        # Nothing ends it; sometimes we stay where no enemy comes, and only shoot.
        env.oxygen, env.diver_count, env.terminal = 200, 3, False
        env.sub_y = 5 * (t // 50 % 2)
        env.surface = env.sub_y == 0
        pair.act(rng.choice([0, 1, 3, 5]), jax.tree.map(lambda x, t=t: x[t], noises))
    before, *_ = pair.check()
    number = before.game.enemies.swimmers.alive.sum(axis=1)
    assert number.max() > 15
    assert np.any(before.game.shots.alive.all(axis=1))


def test_the_arrays_hold_the_maximum_number_of_enemies(pair):
    # With a negative number of divers the submarine can surface repeatedly, which
    # increases the difficulty each time, up to the fastest and most frequent enemies.
    pair.restart(np.random.default_rng(0))
    env = pair.reference.env
    env.diver_count = -1
    state = jax.jit(seaquest.RULES.begin)(jax.random.key(0))
    state = state._replace(divers_aboard=np.int32(-1))
    play = jax.jit(seaquest.RULES.play, static_argnames="ramping")
    noise = seaquest.SeaquestNoise(
        np.bool(True), np.bool(True), np.int32(2), np.bool(True), np.int32(8)
    )
    most = 0
    for t in range(200):
        noise = noise._replace(y=np.int32(2 + t % 7))
        action = game.UP if t % 2 else game.DOWN
        pair.script.calls = [("rand", 0.5), *calls_of(env, action, noise)]
        _, terminal = pair.reference.act(action)
        state, _, over = play(state, action, noise, ramping=True)
        number = np.asarray(state.enemies.swimmers.alive).sum()
        assert number == len(env.e_subs)
        assert not over
        assert not terminal
        most = max(most, number)
    assert env.ramp_index == int(state.level) == 19
    assert most == 29


@pytest.mark.slow
def test_without_ramping_the_difficulty_matches_minatar(pair_class):
    pair = pair_of(pair_class, difficulty_ramping=False)

    def near_the_surface(rng, env):
        mutate(rng, env)
        env.sub_y, env.surface, env.diver_count = 1, False, 6

    pair.mutated(near_the_surface, 2, 500)
    before, _, _, after, _ = pair.check()
    assert np.sum(after.game.is_surfaced) > 50
    np.testing.assert_array_equal(after.game.level, before.game.level)


def test_initial_states_match_minatar(pair):
    pair.check_reset()


def test_enemies_and_divers_appear_with_the_probabilities_of_minatar(pair):
    number = 8000
    env = pair.reference.env
    env.reset()
    env.random = np.random.RandomState(0)
    reference, their_divers = collections.Counter(), collections.Counter()
    for _ in range(number):
        env.e_fish, env.e_subs, env.divers = [], [], []
        env._spawn_enemy()
        env._spawn_diver()
        (enemy,) = env.e_fish + env.e_subs
        reference[bool(env.e_subs), enemy[1], bool(enemy[2])] += 1
        their_divers[env.divers[0][1], bool(env.divers[0][2])] += 1
    env.random = pair.script
    noise = pair.noises(1, number).game
    ours = count_columns(noise.submarine, noise.y, noise.right)
    our_divers = count_columns(noise.diver_y, noise.diver_right)
    for mine, other in ((ours, reference), (our_divers, their_divers)):
        assert mine.keys() == other.keys()
        table = [[each[kind] for kind in sorted(other)] for each in (mine, other)]
        assert stats.chi2_contingency(table).pvalue > 0.001
    together = count_columns(noise.submarine, noise.right, noise.diver_right)
    table = np.reshape([together[kind] for kind in sorted(together)], (2, 2, 2))
    assert stats.chi2_contingency(table).pvalue > 0.001  # independent of each other


def count_columns(*columns):
    return collections.Counter(
        zip(*(column.tolist() for column in columns), strict=True)
    )


@pytest.mark.slow
def test_the_last_observation_shows_the_collision(pair):
    pair.restart(np.random.default_rng(0))
    env = pair.reference.env
    env.sub_x, env.sub_y, env.surface = 4, 3, False
    env.e_fish = [[3, 3, True, 0]]
    noise = jax.tree.map(lambda leaf: leaf[0], pair.noises(0, 1))
    assert pair.act(0, noise._replace(repeat=np.False_))
    _, _, _, _, (obs, _, _) = pair.check()
    assert np.argwhere(obs[0, :, :, 5]).tolist() == [[3, 4]]  # the submarine's cell
    assert np.argwhere(obs[0, :, :, 0]).tolist() == [[3, 4]]
