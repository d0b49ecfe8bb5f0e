"""SpaceInvaders, compared with MinAtar."""

import numpy as np
import pytest

from rlcli.environments.native.minatar import space_invaders
from rlcli.environments.native.minatar.space_invaders import SpaceInvadersState


def bits(board):
    return np.sum(board.astype(int) << np.arange(10), axis=1)


def state_of(env):
    assert env.ramp_index == 12 - env.enemy_move_interval
    return SpaceInvadersState(
        x=env.pos,
        right=env.alien_dir > 0,
        interval=env.enemy_move_interval,
        move_timer=env.alien_move_timer,
        alien_timer=env.alien_shot_timer,
        shot_timer=env.shot_timer,
        aliens=bits(env.alien_map),
        shots=bits(env.f_bullet_map),
        bombs=bits(env.e_bullet_map),
    )


def mutate(rng, env):
    """Any wave: one alien, aliens at the edges, above the cannon, and landed."""
    env.pos = int(rng.integers(10))
    env.alien_dir = int(rng.choice([-1, 1]))
    env.enemy_move_interval = int(rng.integers(6, 13))
    env.ramp_index = 12 - env.enemy_move_interval
    env.alien_move_timer = int(rng.choice([0, rng.integers(12)]))
    env.alien_shot_timer = int(rng.choice([0, rng.integers(10)]))
    env.shot_timer = int(rng.choice([0, rng.integers(5)]))
    env.alien_map = (rng.random((10, 10)) < rng.choice([0, 0.02, 0.3])).astype(float)
    env.alien_map[:, rng.integers(11) :] = 0  # away from one edge
    row, column = rng.integers(10), rng.choice([0, 9, env.pos, rng.integers(10)])
    env.alien_map[row, column] = 1
    env.f_bullet_map = (rng.random((10, 10)) < 0.1).astype(float)
    if rng.random() < 0.5:  # a shot that will hit the alien
        env.f_bullet_map[min(row + 1, 9), column] = 1
    env.f_bullet_map[9] = 0
    env.e_bullet_map = (rng.random((10, 10)) < 0.1).astype(float)


def pair_of(pair_class, **options):
    return pair_class(
        "space_invaders",
        space_invaders.space_invaders,
        space_invaders.RULES,
        state_of,
        lambda env, action, noise: [],  # only the sticky action is random
        **options,
    )


@pytest.fixture(scope="module")
def pair(pair_class):
    return pair_of(pair_class)


@pytest.mark.slow  # single steps match, from any state
def test_random_play_matches_minatar(pair):
    before, _, _, _, (_, reward, terminal) = pair.check_play(range(5), 400)
    assert reward.sum() > 50
    assert terminal.sum() > 5
    assert before.game.right.any()
    assert not before.game.right.all()


@pytest.mark.slow
def test_a_step_matches_minatar_from_unvisited_states(pair):
    pair.mutated(mutate, 0, 5000)
    before, _, _, after, (_, reward, terminal) = pair.check()
    assert reward.max() > 1
    assert terminal.sum() > 500
    turned = before.game.right != after.game.right
    assert np.sum(turned & (before.game.aliens[:, 9] != 0) & terminal) > 30
    assert np.sum(turned & ~terminal) > 300
    cleared = np.all(after.game.aliens == space_invaders.WAVE, axis=1)
    assert cleared.sum() > 200
    faster = after.game.interval < before.game.interval
    np.testing.assert_array_equal(faster, cleared & (before.game.interval > 6))
    assert np.sum(cleared & (before.game.interval == 6)) > 10


def test_the_nearest_alien_shoots_and_of_two_the_left_one(pair):
    def twins(rng, env):
        env.alien_map[:] = 0
        left, right = sorted(rng.integers(10, size=2))
        env.alien_map[rng.integers(9, size=2), [left, right]] = 1
        env.pos = (left + right) // 2
        env.alien_shot_timer = 0

    pair.mutated(twins, 1, 300)
    _, _, _, after, _ = pair.check()
    assert np.all(np.sum(after.game.bombs != 0, axis=1) == 1)


def test_without_ramping_a_new_wave_matches_minatar(pair_class):
    pair = pair_of(pair_class, difficulty_ramping=False)
    pair.mutated(mutate, 2, 500)
    before, _, _, after, _ = pair.check()
    assert np.any(np.all(after.game.aliens == space_invaders.WAVE, axis=1))
    np.testing.assert_array_equal(after.game.interval, before.game.interval)


def test_initial_states_match_minatar(pair):
    pair.check_reset()
