"""Freeway, compared with MinAtar."""

import jax
import numpy as np
import pytest
from scipy import stats

from rlcli.environments.native.minatar import freeway, game


def state_of(env):
    column, row, timer, speed = np.array(env.cars).T
    np.testing.assert_array_equal(row, freeway.ROW)
    return freeway.FreewayState(
        y=env.pos,
        rest=env.move_timer,
        steps=max(env.terminate_timer, 0),  # −1 at the end
        column=column,
        timer=timer,
        cars=freeway.Cars(np.abs(speed), speed > 0),
    )


def calls_of(env, action, noise):
    if (env.pos, env.move_timer, action) != (1, 0, game.UP):
        return []
    directions = np.where(noise.right, 0.9, 0.1)
    return [("randint", noise.wait.astype(int)), ("rand", directions)]


def mutate(rng, env):
    """Any position, often near the far side, near cars, or at the time limit."""
    env.pos = int(rng.choice([1, 9, rng.integers(1, 10)]))
    env.move_timer = int(rng.choice([0, rng.integers(4)]))
    env.terminate_timer = int(rng.choice([0, 1, rng.integers(2501)]))
    for car in env.cars:
        wait = int(rng.integers(1, 6))
        car[0] = int(rng.choice([0, 3, 4, 5, 9, rng.integers(10)]))
        car[2:] = [int(rng.choice([0, rng.integers(wait + 1)])), wait]
        car[3] *= int(rng.choice([-1, 1]))


@pytest.fixture(scope="module")
def pair(pair_class):
    return pair_class("freeway", freeway.freeway, freeway.RULES, state_of, calls_of)


@pytest.mark.slow  # single steps match, from any state
def test_random_play_matches_minatar(pair):
    before, _, _, after, _ = pair.check_play(range(4), 400)
    assert np.any((before.game.y < 9) & (after.game.y == 9))  # hit
    assert len(np.unique(before.game.y)) > 4


@pytest.mark.slow
def test_a_step_matches_minatar_from_unvisited_states(pair):
    pair.mutated(mutate, 0, 5000)
    before, _, noise, after, (_, reward, terminal) = pair.check()
    assert reward.sum() > 150
    assert terminal.sum() > 1000
    across = reward == 1
    np.testing.assert_array_equal(after.game.cars.wait[across], noise.game.wait[across])
    hit = (before.game.y > 1) & (before.game.y < 8) & (after.game.y == 9)
    assert hit.sum() > 300


@pytest.mark.slow
def test_the_game_terminates_after_2501_steps(pair):
    pair.restart(np.random.default_rng(0))
    noises = pair.noises(0, 2501)
    for t in range(2501):
        noise = jax.tree.map(lambda leaf, t=t: leaf[t], noises)
        ended = pair.act(game.NOTHING, noise)
        assert ended == (t == 2500)
    _, _, _, _, (_, _, terminal) = pair.check()
    assert terminal.sum() == 1  # with a discount of 0, as `check` asserts


def test_car_speeds_have_the_probabilities_of_minatar(pair):
    number = 3000
    env = pair.reference.env
    env.random = np.random.RandomState(0)
    speeds = []
    for _ in range(number):
        env.reset()
        speeds.append([car[3] for car in env.cars])
    env.random = pair.script
    state, _ = pair.reset(jax.random.split(jax.random.key(0), number))
    first = pair.unpack(state).game
    np.testing.assert_array_equal(first.timer, first.cars.wait)
    ours = [speed_of(first.cars), speed_of(pair.noises(1, number).game)]
    options = np.r_[-5:0, 1:6]
    for each in ours:
        for lane in range(8):
            table = [
                np.sum(drawn[:, lane, None] == options, axis=0)
                for drawn in (each, np.array(speeds))
            ]
            assert np.sum(table) == 2 * number
            assert stats.chi2_contingency(table).pvalue > 0.001
    correlations = np.corrcoef(np.concatenate(ours).T) - np.eye(8)
    assert np.abs(correlations).max() < 4 / np.sqrt(2 * number)


def speed_of(cars):
    return np.asarray(cars.wait) * np.where(cars.right, 1, -1)


def test_episodes_begin_at_the_bottom_with_all_cars_at_the_left(pair):
    pair.restart(np.random.default_rng(0))
    expected = pair.state().game
    state, obs = pair.reset(jax.random.split(jax.random.key(0), 5))
    found = pair.unpack(state).game
    for name in ("y", "rest", "steps", "column"):
        every = np.asarray(getattr(found, name))
        np.testing.assert_array_equal(every, [getattr(expected, name)] * 5)
    np.testing.assert_array_equal(
        np.asarray(obs)[..., :2], [pair.reference.state()[..., :2]] * 5
    )
