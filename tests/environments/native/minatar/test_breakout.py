"""Breakout, compared with MinAtar."""

import jax
import numpy as np
import pytest
from scipy import stats

from rlcli.environments.native.minatar import breakout, game

NUMBERS = np.arange(30)


def state_of(env):
    bricks = env.brick_map.astype(bool)
    assert not bricks[0].any()
    assert not bricks[4:].any()
    return breakout.BreakoutState(
        x=env.ball_x,
        y=env.ball_y,
        right=env.ball_dir in (1, 2),
        down=env.ball_dir in (2, 3),
        last_x=env.last_x,
        last_y=env.last_y,
        paddle=env.pos,
        struck=env.strike,
        bricks=int(np.sum(bricks[1:4].ravel() << NUMBERS)),
    )


def mutate(rng, env):
    """Any position, often near walls, bricks and the paddle; few bricks or none."""
    env.ball_x = int(rng.choice([0, 9, rng.integers(10)]))
    env.ball_y = int(rng.choice([0, 8, rng.integers(9)]))
    env.ball_dir = int(rng.integers(4))
    env.last_x, env.last_y = (int(each) for each in rng.integers(10, size=2))
    env.pos = int(np.clip(env.ball_x + rng.integers(-3, 4), 0, 9))
    env.strike = bool(rng.random() < 0.3)
    share = rng.choice([0.0, 0.05, 0.5, 1.0])
    env.brick_map[1:4] = rng.random((3, 10)) < share


@pytest.fixture(scope="module")
def pair(pair_class):
    def calls_of(env, action, noise):
        return []  # only the sticky action is random

    return pair_class("breakout", breakout.breakout, breakout.RULES, state_of, calls_of)


def test_random_play_matches_minatar(pair):
    before, _, noise, _, (_, reward, terminal) = pair.check_play(range(5), 400)
    assert reward.sum() > 50
    assert terminal.sum() > 50
    assert 0.05 < noise.repeat.mean() < 0.15
    assert before.game.struck.any()


@pytest.mark.slow
def test_a_step_matches_minatar_from_unvisited_states(pair):
    pair.mutated(mutate, 0, 5000)
    before, _, _, after, (_, reward, terminal) = pair.check()
    ball = before.game
    assert terminal.sum() > 100
    assert reward.sum() > 200
    assert reward[ball.struck].sum() == 0
    floor = (ball.y == 8) & ball.down
    assert np.sum(floor & ~terminal) > 100  # bounced off the paddle
    assert np.sum((ball.y == 0) & ~ball.down & (ball.x == 9) & ball.right) > 50
    last = floor & (ball.bricks == 0)
    assert last.sum() > 100
    np.testing.assert_array_equal(after.game.bricks[last], breakout.BRICKS)


def test_the_ball_starts_at_either_side(pair):
    keys = jax.random.split(jax.random.key(0), 2000)
    state, obs = jax.device_get(pair.reset(keys))
    right = np.asarray(pair.unpack(state).game.right)
    assert stats.binomtest(int(right.sum()), 2000).pvalue > 0.001
    rng, sides = np.random.default_rng(0), set()
    for _ in range(20):
        pair.restart(rng)
        expected, seen = pair.state(), pair.reference.state()
        sides.add(bool(expected.game.right))
        same_side = right == expected.game.right
        for word, one in zip(
            state, game.pack_state(pair.max_values, expected), strict=True
        ):
            assert np.all(word[same_side] == np.asarray(one))
        assert np.all(obs[same_side] == seen)
    assert sides == {False, True}
