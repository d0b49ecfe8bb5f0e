"""Episode statistics, against loops over the episodes."""

import jax
import numpy as np
import pytest

from rlcli.loop.episode_statistics import EpisodeStatistics, update_statistics
from rlcli.types import TimeStep


def nothing_yet(environments: int) -> EpisodeStatistics:
    zero = np.float32(0)
    return EpisodeStatistics(
        running_return=np.zeros(environments, np.float32),
        running_length=np.zeros(environments, np.int32),
        episodes=np.int32(0),
        last_return=zero,
        last_length=zero,
        average_return=zero,
    )


def make_timestep(reward: np.ndarray, last: np.ndarray) -> TimeStep:
    obs = np.zeros((len(last), 1), np.float32)
    return TimeStep(obs, obs, reward.astype(np.float32), 1.0 - last, last, {})


def test_statistics_are_those_of_a_loop_over_the_episodes():
    draws = np.random.default_rng(0)
    shape = 200, 4
    rewards = draws.integers(-3, 4, shape)
    lasts = draws.random(shape) < 0.1
    running, length = np.zeros(4), np.zeros(4, int)
    episodes, average, last_return, last_length = 0, 0.0, 0.0, 0.0
    ours, step = nothing_yet(4), jax.jit(update_statistics)
    for reward, last in zip(rewards, lasts, strict=True):
        ours = step(ours, make_timestep(reward, last))
        running += reward
        length += 1
        if last.any():
            episodes += last.sum()
            last_return, last_length = running[last].mean(), length[last].mean()
            rate = min(1, last.sum() / min(episodes, 10))
            average += rate * (last_return - average)
        running[last], length[last] = 0, 0
        assert (int(ours.episodes), float(ours.last_return)) == pytest.approx(
            (episodes, last_return), rel=1e-6
        )
        np.testing.assert_array_equal(ours.running_return, running)
        np.testing.assert_array_equal(ours.running_length, length)
        np.testing.assert_allclose(ours.last_length, last_length, rtol=1e-6)
        np.testing.assert_allclose(ours.average_return, average, rtol=1e-4, atol=1e-5)
    assert episodes > 50


def test_info_is_summed_over_episodes():
    draws = np.random.default_rng(1)
    shape = 100, 3
    regrets, lasts = draws.integers(3, size=shape), draws.random(shape) < 0.1
    zero = {"regret": np.float32(0)}
    ours = nothing_yet(3)._replace(
        running_info={"regret": np.zeros(3, np.float32)},
        last_info=zero,
        total_info=zero,
        max_info={"regret": np.float32(-np.inf)},
    )
    running, mean, step, finished = np.zeros(3), 0.0, jax.jit(update_statistics), []
    for regret, last in zip(regrets, lasts, strict=True):
        both = {"regret": regret, "other": last}  # only requested names are summed
        ours = step(ours, make_timestep(np.zeros(3), last)._replace(info=both))
        running += regret
        mean = running[last].mean() if last.any() else mean
        finished += running[last].tolist()
        running[last] = 0
        assert float(ours.last_info["regret"]) == pytest.approx(mean)
        np.testing.assert_array_equal(ours.running_info["regret"], running)
        assert float(ours.total_info["regret"]) == sum(finished)
        assert float(ours.max_info["regret"]) == max(finished, default=-np.inf)
    assert ours.running_info.keys() == ours.last_info.keys() == {"regret"}


def test_the_average_return_is_the_mean_of_ten_episodes_then_a_moving_average():
    ours, last, step = nothing_yet(1), np.array([True]), jax.jit(update_statistics)
    for number in range(1, 11):
        ours = step(ours, make_timestep(np.array([number]), last))
    assert float(ours.average_return) == pytest.approx(5.5)
    ours = step(ours, make_timestep(np.array([15.5]), last))
    assert float(ours.average_return) == pytest.approx(6.5)  # a tenth of the way


def test_truncated_episodes_count_like_terminated_ones():
    last = np.array([True, False])
    step = make_timestep(np.array([2, 3]), last)
    update = jax.jit(update_statistics)
    terminated = update(nothing_yet(2), step._replace(discount=1.0 - last))
    truncated = update(nothing_yet(2), step._replace(discount=np.ones(2)))
    jax.tree.map(np.testing.assert_array_equal, truncated, terminated)
    assert int(terminated.episodes) == 1
