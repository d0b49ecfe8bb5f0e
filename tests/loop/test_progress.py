"""Progress: its initial value, statistics and random streams."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.loop.progress import (
    AXES,
    EVALUATION,
    INIT,
    LEARN,
    POLICY,
    RESET,
    STEP,
    EpisodeStatistics,
    Progress,
    Setup,
    clock_at,
    current_step,
    draw_step_noise,
    info_names,
    initial_progress,
    numbers_array,
    stream_key,
    update_statistics,
)
from rlcli.runs import checkpoint
from rlcli.types import Clock, TimeStep

DATA = {
    "environment": {"name": "CartPole-v1", "num_envs": 3},
    "network": {"name": "mlp", "layers": [4]},
    "updater": "ppo",
    "train": {"steps": 1_000, "unroll": 4},
}


@pytest.fixture(scope="module")
def setup() -> Setup:
    return build(recipe.load_recipe(DATA))


@pytest.fixture(scope="module")
def begin(setup):
    """The function of a seed that returns its initial progress, compiled."""

    def start(seed):
        state, obs = setup.environment.reset(stream_key(seed, RESET))
        return initial_progress(setup, seed, numbers_array(setup), state, obs)

    return jax.jit(start)


@pytest.fixture(scope="module")
def progress(begin) -> Progress:
    return begin(np.uint32(7))


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


def test_info_names_are_those_of_the_environment():
    def logged(name):
        environment = build(
            recipe.load_recipe(DATA | {"environment": name})
        ).environment
        state, _ = jax.jit(environment.reset)(jax.random.key(0))
        return info_names(environment, state)

    assert logged("CartPole-v1") == []
    assert logged("bsuite/DeepSea") == ["bad_episodes", "denoised_return"]


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


def test_every_stream_of_every_seed_has_different_keys():
    streams = (INIT, RESET, STEP, POLICY, LEARN, EVALUATION)
    keys = [
        jax.random.key_data(stream_key(seed, which)).tobytes()
        for seed, which in itertools.product((0, 1, 2**31 - 1), streams)
    ]
    assert len(set(keys)) == len(keys) == 18


def test_noise_depends_on_seed_and_time_only(setup):
    @jax.jit
    def draw(seed, time):
        is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
        return [
            jax.random.key_data(leaf) if is_key(leaf) else leaf
            for leaf in jax.tree.leaves(draw_step_noise(setup, seed, time))
        ]

    def noise(seed: int, time: int) -> bytes:
        leaves = jax.device_get(draw(np.uint32(seed), np.int32(time)))
        return b"".join(leaf.tobytes() for leaf in leaves)

    assert noise(1, 5) == noise(1, 5)
    assert len({noise(1, 5), noise(1, 6), noise(2, 5), noise(2, 6)}) == 4


def test_initial_progress_has_a_pending_action(setup, progress):
    environment, agent = setup.environment, setup.agent
    _, obs = jax.jit(environment.reset)(stream_key(7, RESET))
    np.testing.assert_array_equal(progress.pending.obs, obs)
    assert progress.pending.first.tolist() == [True] * 3
    assert set(progress.pending.extras) == set(agent.requires) == {"log_prob"}
    assert np.all(progress.pending.extras["log_prob"] < 0)
    assert (int(progress.iteration), int(progress.position)) == (0, 0)
    assert int(progress.statistics.episodes) == 0


def test_the_initial_unroll_is_zero_with_the_shapes_of_its_steps(progress):
    assert progress.unroll.obs.shape == (4, 3, 4)
    assert progress.unroll.action.dtype == progress.pending.action.dtype
    assert progress.unroll.extras["log_prob"].shape == (4, 3)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(progress.unroll))


def test_progress_contains_no_key(progress):
    kinds = {leaf.dtype for leaf in jax.tree.leaves(progress)}
    assert not any(jnp.issubdtype(kind, jax.dtypes.prng_key) for kind in kinds)


def test_the_initial_parameters_depend_on_the_seed(begin, progress):
    same, other = begin(np.uint32(7)), begin(np.uint32(8))
    jax.tree.map(np.testing.assert_array_equal, same, progress)
    ours, theirs = (
        checkpoint.flatten_tree(each.agent.learner) for each in (same, other)
    )
    for function in ("policy", "value"):
        drawn = f"params/{function}/linear/w"
        assert not np.any(ours[drawn] == theirs[drawn])


def test_a_clock_counts_the_steps_of_all_environments_of_a_seed(setup, progress):
    later = progress._replace(iteration=np.int32(10), position=np.int32(2))
    step = current_step(setup, later)
    assert int(step) == 10 * 4 + 2
    clock = clock_at(setup, later, step, np.bool_(True))
    assert (int(clock.iteration), float(clock.steps)) == (10, 42 * 3)
    assert setup.steps == 4 * 3


def test_iteration_and_position_are_the_same_for_all_seeds():
    unbatched = [name for name, axis in AXES._asdict().items() if axis is None]
    assert unbatched == ["iteration", "position", "numbers", "data"]


def test_clock_zero_has_zero_counters():
    *counters, numbers, data = Clock.zero()
    assert [float(value) for value in counters] == [0, 0, 0, 0, False]
    assert (numbers, data) == ({}, ())
