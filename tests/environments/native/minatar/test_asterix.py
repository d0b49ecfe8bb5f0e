"""Asterix, compared with MinAtar."""

import collections

import jax
import numpy as np
import pytest
from scipy import stats

from rlcli.environments.native.minatar import asterix


def state_of(env):
    none = (0, 0, False, False)
    lanes = [none if each is None else each for each in env.entities]
    column, _, right, gold = zip(*lanes, strict=True)
    there = [each is not None for each in env.entities]
    assert env.spawn_speed == max(1, 10 - env.ramp_index)
    assert env.move_speed == max(1, 5 - env.ramp_index // 2)
    return asterix.AsterixState(
        x=env.player_x,
        y=env.player_y,
        spawn_timer=env.spawn_timer,
        move_timer=env.move_timer,
        ramp_timer=1 + env.ramp_timer,
        level=env.ramp_index,
        is_occupied=np.array(there),
        column=np.array(column),
        right=np.array(right, bool),
        gold=np.array(gold, bool),
    )


def calls_of(env, action, noise):
    if env.spawn_timer > 0:
        return []
    calls = [
        ("rand", 0.4 if noise.right else 0.6),
        ("rand", 0.3 if noise.gold else 0.4),
    ]
    free = sum(each is None for each in env.entities)
    return [*calls, ("randint", int(noise.share) * free // 840)] if free else calls


def comparable_state(state):
    there = state.is_occupied
    return state._replace(
        column=state.column * there, right=state.right & there, gold=state.gold & there
    )


def mutate(rng, env):
    """Any position and level, often full lanes and a player next to an object."""
    env.ramp_index = int(rng.integers(10))
    env.spawn_speed = max(1, 10 - env.ramp_index)
    env.move_speed = max(1, 5 - env.ramp_index // 2)
    env.ramp_timer = int(rng.choice([-1, 0, 100, rng.integers(100)]))
    env.spawn_timer = int(rng.choice([0, rng.integers(env.spawn_speed)]))
    env.move_timer = int(rng.choice([0, rng.integers(env.move_speed)]))
    share = rng.choice([0.3, 0.8, 1.0])
    for lane in range(8):
        if rng.random() < share:
            x = int(rng.choice([0, 9, rng.integers(10)]))
            right, gold = bool(rng.integers(2)), bool(rng.integers(2))
            env.entities[lane] = [x, lane + 1, right, gold]
    env.player_y = int(rng.integers(1, 9))
    entity = env.entities[env.player_y - 1]
    near = entity[0] + rng.integers(-2, 3) if entity else rng.integers(10)
    env.player_x = int(np.clip(near, 0, 9))


@pytest.fixture(scope="module")
def pair(pair_class):
    return pair_class(
        "asterix", asterix.asterix, asterix.RULES, state_of, calls_of, comparable_state
    )


@pytest.mark.slow  # single steps match, from any state
def test_random_play_matches_minatar(pair):
    before, _, _, _, (_, reward, terminal) = pair.check_play(range(5), 400)
    assert reward.sum() > 4
    assert terminal.sum() > 4
    assert before.game.level.max() > 0


@pytest.mark.slow
def test_a_step_matches_minatar_from_unvisited_states(pair):
    pair.mutated(mutate, 0, 5000)
    before, _, _, after, (_, reward, terminal) = pair.check()
    assert reward.sum() > 300
    assert terminal.sum() > 300
    assert np.sum(before.game.is_occupied & ~after.game.is_occupied) > 300
    assert np.sum(after.game.level > before.game.level) > 300
    last = before.game.level == 9
    assert np.sum(last & (before.game.ramp_timer == 0)) > 30
    assert np.all(after.game.level[last] == 9)


def test_full_lanes_do_not_change_when_an_object_is_due(pair):
    def full(rng, env):
        mutate(rng, env)
        env.entities = [[4, 1 + lane, bool(lane % 2), False] for lane in range(8)]
        env.player_x, env.spawn_timer, env.move_timer = 7, 0, 1

    pair.mutated(full, 1, 100)
    before, _, _, after, _ = pair.check()
    assert np.all(after.game.is_occupied)
    np.testing.assert_array_equal(after.game.column, before.game.column)


def test_without_ramping_the_difficulty_matches_minatar(pair_class):
    pair = pair_class(
        "asterix",
        asterix.asterix,
        asterix.RULES,
        state_of,
        calls_of,
        comparable_state,
        difficulty_ramping=False,
    )
    pair.mutated(mutate, 2, 500)
    before, _, _, after, _ = pair.check()
    assert np.sum(before.game.ramp_timer == 0) > 100
    np.testing.assert_array_equal(after.game.level, before.game.level)


def test_initial_states_match_minatar(pair):
    pair.check_reset()


def test_objects_appear_with_the_probabilities_of_minatar(pair):
    number = 8000
    lanes = [None, [3, 2, True, False], None, None, [3, 5, True, False]] + [None] * 3
    reference, free = (
        collections.Counter(),
        [i for i, each in enumerate(lanes) if not each],
    )
    env = pair.reference.env
    env.random = np.random.RandomState(0)
    for _ in range(number):
        env.entities = list(lanes)
        env._spawn_entity()
        (lane,) = [i for i in free if env.entities[i]]
        reference[lane, *env.entities[lane][2:]] += 1
    env.random = pair.script
    noise = pair.noises(1, number).game
    chosen = np.array(free)[noise.share * len(free) // 840]
    native = collections.Counter(zip(chosen, noise.right, noise.gold, strict=True))
    assert len(native) == len(reference) == 4 * len(free)
    table = [
        [counts[kind] for kind in sorted(reference)] for counts in (native, reference)
    ]
    assert stats.chi2_contingency(table).pvalue > 0.001
    for n in range(1, 9):
        counts = np.bincount(noise.share * n // 840)
        assert n == 1 or stats.chisquare(counts).pvalue > 0.001


def test_every_lane_is_equally_likely():
    shares = np.arange(840)
    for n in range(1, 9):
        np.testing.assert_array_equal(np.bincount(shares * n // 840), 840 // n)


def test_noise_is_in_range(pair):
    noise = jax.tree.map(np.asarray, pair.noises(3, 5000).game)
    assert noise.share.min() >= 0
    assert noise.share.max() < 840
