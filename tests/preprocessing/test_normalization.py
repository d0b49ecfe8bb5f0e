"""Normalization, beside NumPy's mean and variance of all that was seen."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data_sets import bandit_data, write_data
from folders import read_rows
from gymnasium import spaces

import rlcli
from rlcli import loop
from rlcli.assembly import build
from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.loop import agents
from rlcli.preprocessing.moments import (
    Moments,
    ObservationMoments,
)
from rlcli.preprocessing.normalization import normalizer
from rlcli.recipe import load_recipe, resolve
from rlcli.runs import checkpoint
from rlcli.tracers.multi_step import lambda_return, n_step
from rlcli.types import (
    Clock,
    Decision,
    Estimates,
    Policy,
    Report,
    Transition,
    Updater,
)

PLACE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BYTES = spaces.Box(0, 255, (3,), np.uint8)
SEEN = spaces.Dict(
    {
        action_masks.MASK: spaces.Box(0.0, 1.0, (2,), np.float32),
        "bytes": BYTES,
        "choice": spaces.Discrete(5),
        "image": spaces.Box(0, 255, (2, 3, 1), np.uint8),
        "place": PLACE,
        "planes": spaces.Box(0, 1, (2, 2, 1), bool),
    }
)


@pytest.mark.parametrize("sizes", [[1] * 40, [7, 1, 32, 3]])
def test_running_moments_match_those_of_all_rows(sizes):
    rng = np.random.default_rng(0)
    rows = rng.normal(50.0, [0.1, 30.0], (sum(sizes), 2)).astype("f4")
    moments = Moments.initial(np.zeros(2, np.float32))
    assert (moments.mean == 0).all()
    assert (moments.variance == 1).all()
    take = jax.jit(Moments.update)
    for part in np.split(rows, np.cumsum(sizes)[:-1]):
        moments = take(moments, part)
    assert moments.count == sum(sizes)
    expected = rows.astype(np.float64)
    np.testing.assert_allclose(moments.mean, expected.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, expected.var(0), rtol=1e-3)


def test_the_count_saturates():
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    moments = Moments(np.int32(2**30 - 1), zeros, ones)
    take = jax.jit(Moments.update)
    assert take(moments, np.ones((5, 2), np.float32)).count == 2**30


@pytest.mark.parametrize(("rows", "unrolls"), [(1, 400), (64, 20), (20_000, 1)])
def test_a_mean_that_is_large_beside_the_deviation_is_no_deviation(rows, unrolls):
    """float32 has steps of 1/16 at 10⁶, where a sum of squares has steps of 65 536."""
    rng = np.random.default_rng(0)
    parts = rng.normal(1e6, 1.0, (unrolls, rows, 2)).astype("f4")
    moments, take = Moments.initial(np.zeros(2, np.float32)), jax.jit(Moments.update)
    for part in parts:
        moments = take(moments, part)
    expected = parts.reshape(-1, 2).astype(np.float64)
    np.testing.assert_allclose(moments.mean, expected.mean(0), rtol=0, atol=0.2)
    np.testing.assert_allclose(moments.variance, expected.var(0), rtol=0.05)


def feed(rows, clip=10.0):
    """The observations' part of `normalizer`, after these rows, and its moments."""
    part = ObservationMoments(PLACE, clip)
    moments, update = part.initial(), jax.jit(Moments.update)
    for row in np.asarray(rows, np.float32):
        moments = update(moments, [row])
    return lambda obs: np.asarray(part.normalize(moments, np.float32(obs))), moments


@pytest.mark.parametrize("constant", [0.0, 3.7, 1e6 + 0.3])
def test_a_constant_entry_is_0_and_clipped_once_it_changes(constant):
    """Without clipping a change of 1 is 1/√10⁻⁸ = 10 000 deviations."""
    rows = np.full((100, 8, 2), constant)
    (normalize, _), (unbounded, _) = feed(rows), feed(rows, clip=None)
    np.testing.assert_allclose(normalize(rows[0]), np.zeros((8, 2)), atol=1e-3)
    changed = np.array([[constant + 1, constant - 1]])
    np.testing.assert_array_equal(normalize(changed), [[10, -10]])
    assert abs(unbounded(changed)).min() > 5_000


def test_the_first_observations_are_clipped_as_they_are():
    normalize, _ = feed(np.zeros((0, 1, 2)))
    np.testing.assert_array_equal(normalize([[3, -1e9]]), [[3, -10]])


@pytest.mark.parametrize("outlier", [1e6, 1e30, 3e38])
def test_an_outlier_is_bounded_and_leaves_finite_statistics(outlier):
    """One of 100 rows: its deviation is √99 of the whole, and 10 at most."""
    rows = np.zeros((100, 1, 2))
    rows[50] = outlier, -outlier
    normalize, moments = feed(rows)
    limit = min(outlier, 1e15)
    np.testing.assert_allclose(moments.variance, 0.0099 * limit**2, rtol=1e-4)
    largest = normalize([[outlier, -outlier]])[0]
    expected = np.sqrt(99) if outlier <= 1e15 else 10.0
    np.testing.assert_allclose(largest, [expected, -expected], rtol=1e-4)
    np.testing.assert_allclose(normalize([[0.0, 0.0]])[0], [-0.1005, 0.1005], rtol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_leave_the_statistics_finite(bad):
    normalize, moments = feed([[[1, 2]], [[3, bad]], [[5, 4]]])
    np.testing.assert_allclose(moments.mean[0], [3, 8 / 3], rtol=1e-6)  # bad as 2
    assert np.isfinite(normalize([[1, 2]])).all()
    # The fault itself stays visible.
    assert np.isnan(normalize([[np.nan, 0]])[0, 0])


GAMMA, ENVS, STEPS = 0.9, 3, 4
# The lowest value and the end of each byte; the first one never changes.
IMAGE = (
    np.array([[[87], [0], [0]], [[200], [9], [9]]]),
    np.array([[[88], [256], [2]], [[256], [99], [12]]]),
)


def echo_updater():
    """An updater whose state is what it was shown last, and which values all as 1."""

    def shown(steps):
        return {"obs": steps.obs, "next_obs": steps.next_obs, "reward": steps.reward}

    def init(key):
        blank = unroll(0)
        return shown(jax.tree.map(jnp.zeros_like, blank))

    def update(state, batch, weight, clock, key):
        return shown(batch), Report(jnp.zeros(ENVS), {})

    def estimate(state, steps, key):
        ones = jnp.ones(steps.reward.shape)
        return Estimates(ones, ones, ones, ones)

    def act(acting, obs, state, first, noise):
        return Decision(obs, {}), state

    policy = Policy(lambda batch: (), lambda key, batch: (), act, act, lambda *_: 0.0)
    return Updater(
        init=init,
        acting=lambda state: (),
        policy=policy,
        update=update,
        estimate=estimate,
        failed_at=lambda state: jnp.int32(-1),
    )


def unroll(index):
    """What an environment says, drawn in NumPy."""
    rng = np.random.default_rng(index)
    shape = (STEPS, ENVS)

    def obs():
        return {
            action_masks.MASK: rng.integers(0, 2, (*shape, 2)).astype("f4"),
            "bytes": rng.integers(0, 255, (*shape, 3)).astype(np.uint8),
            "choice": rng.integers(0, 5, shape).astype("i4"),
            "image": rng.integers(*IMAGE, (*shape, 2, 3, 1)).astype(np.uint8),
            "place": rng.normal([3, -70], [0.1, 20], (*shape, 2)).astype("f4"),
            "planes": rng.random((*shape, 2, 2, 1)) < 0.2,
        }

    last = rng.random(shape) < 0.3
    return Transition(
        obs=obs(),
        action=np.zeros(shape, "i4"),
        reward=rng.normal(2, 5, shape).astype("f4"),
        discount=np.where(last & (rng.random(shape) < 0.5), 0, 1).astype("f4"),
        next_obs=obs(),
        first=rng.random(shape) < 0.3,
        last=last,
        extras={},
    )


@functools.cache
def learn_unrolls():
    """An agent that echoes, and its state after each of some unrolls."""
    wrapper = normalizer(SEEN, ENVS, observation=True, reward=True, gamma=GAMMA)
    agent = agents.online_agent(wrapper(echo_updater()), lambda_return(gamma=GAMMA))
    state = agent.init(jax.random.key(0), unroll(0))
    learn, states = jax.jit(agent.learn), [state]
    for index in range(3):
        clock = Clock.zero()._replace(iteration=np.int32(index))
        state, _ = learn(state, unroll(index), clock, jax.random.key(0))
        states.append(state)
    return agent, jax.device_get(states)


def normalized(name, raw, count):
    """A member of observations in the moments of the first unrolls."""
    if not count:
        return np.clip(raw.astype(np.float64), -10, 10)
    rows = np.concatenate([np.concatenate(unroll(i).obs[name]) for i in range(count)])
    rows = rows.astype(np.float64)
    return np.clip((raw - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8), -10, 10)


def return_deviation(count):
    """Of the discounted returns that ran up in the first unrolls, in a loop."""
    running, every = np.zeros(ENVS), []
    for index in range(count):
        steps = unroll(index)
        for reward, first in zip(steps.reward, steps.first, strict=True):
            running = reward + GAMMA * np.where(first, 0, running)
            every.append(running)
    return np.std(every) if count else 1.0


def test_learning_uses_the_statistics_of_earlier_unrolls():
    _, states = learn_unrolls()
    statistics = [state.learner.statistics for state in states]
    chex.assert_trees_all_equal_shapes_and_dtypes(*statistics)
    for index, state in enumerate(states[1:]):
        for name in ("obs", "next_obs"):
            raw, shown = getattr(unroll(index), name), state.learner.learner[name]
            for member in ("place", "image", "planes"):
                expected = normalized(member, raw[member], index)
                np.testing.assert_allclose(
                    shown[member], expected, rtol=1e-3, atol=1e-3
                )
            for unchanged in ("bytes", "choice", action_masks.MASK):
                np.testing.assert_array_equal(shown[unchanged], raw[unchanged])


def test_returns_are_scaled_by_the_deviation_of_running_returns():
    """λ-returns of scaled rewards, where every value is 1 in that unit."""
    _, states = learn_unrolls()
    ones = np.ones((STEPS, ENVS), "f4")
    for index, state in enumerate(states[1:]):
        steps = unroll(index)
        scaled = steps._replace(
            reward=steps.reward / np.float32(return_deviation(index))
        )
        estimates = Estimates(ones, ones, ones, ones)
        expected = lambda_return(gamma=GAMMA).trace(scaled, estimates).reward
        actual = state.learner.learner["reward"]
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def learn_rewards(rewards, tracer, **clips):
    """What an updater is given of rewards `[N, T, ENVS]`, in N unrolls."""
    wrapper = normalizer(
        SEEN, ENVS, observation=False, reward=True, gamma=GAMMA, **clips
    )
    agent = agents.online_agent(wrapper(echo_updater()), tracer)
    no_end = np.zeros((STEPS, ENVS), bool)
    steps = unroll(0)._replace(discount=np.ones((STEPS, ENVS), "f4"))
    steps = steps._replace(first=no_end, last=no_end)
    state, learn = agent.init(jax.random.key(0), steps), jax.jit(agent.learn)
    for index, reward in enumerate(np.asarray(rewards, "f4")):
        clock = Clock.zero()._replace(iteration=np.int32(index))
        rows = steps._replace(reward=reward)
        state, _ = learn(state, rows, clock, jax.random.key(0))
    return np.asarray(state.learner.learner["reward"])


@pytest.mark.parametrize(
    ("clips", "expected"),
    [({}, 10), ({"reward_clip": 4.0}, 4), ({"reward_clip": None}, 10_000)],
)
def test_the_first_reward_after_240_zeros_is_clipped(clips, expected):
    rewards = np.zeros((20 + 1, STEPS, ENVS))  # 20 unrolls of 12 zeros
    rewards[-1, 1, :] = 1, -1, 0
    given = learn_rewards(rewards, n_step(gamma=GAMMA), **clips)
    np.testing.assert_allclose(given[1], [expected, -expected, 0], rtol=1e-6)
    np.testing.assert_array_equal(given[[0, 2, 3]], np.zeros((3, ENVS)))


def test_tracers_sum_clipped_rewards():
    """Before the first statistics the deviation is 1: r = 10⁶ counts as 10."""
    rewards = np.tile(np.array([1e6, 1, -1e6, 0])[:, None], (1, ENVS))
    given = learn_rewards(rewards[None], n_step(n=2, gamma=GAMMA))
    # The first row begins before the unroll. The last rewards are 10, 1, −10, 0.
    expected = [10 + GAMMA, 1 - GAMMA * 10, -10]
    np.testing.assert_allclose(given[1:, 0], expected, rtol=1e-6)


def test_the_deviation_is_that_of_rewards_without_clipping():
    """A reward of 90 in 12: the deviations of G and of the next 9 are known."""
    rewards = np.zeros((2, STEPS, ENVS))
    rewards[0, -1, 0], rewards[1, :, 1] = 90, 9
    deviation = np.std([90.0] + [0.0] * 11)
    given = learn_rewards(rewards, n_step(gamma=GAMMA))
    np.testing.assert_allclose(given[:, 1], 9 / deviation, rtol=1e-6)


def test_a_single_row_has_no_variance_to_divide_by():
    """A reward of −5 divided by √10⁻⁸ would be −50 000."""
    moments = ObservationMoments(PLACE, 10.0)
    row = np.array([[3.0, -700.0]], np.float32)
    seen = Moments.update(moments.initial(), [row])
    other = row + np.array([[0.5, -2.0]], np.float32)
    np.testing.assert_allclose(moments.normalize(seen, other), other - row, rtol=1e-6)
    returns = Moments.update(Moments.initial(jnp.float32(0)), np.float32([-5.0]))
    assert returns.deviation == pytest.approx(1.0)


@pytest.mark.slow
def test_an_agent_whose_replay_starts_with_a_data_set_starts_with_its_statistics(
    tmp_path,
):
    """Two environments share 601 steps: each has 100 unrolls of 3, and its own sum."""
    data = bandit_data(0.5, steps=601)
    write_data(tmp_path / "data.npz", data)
    recipe = load_recipe(
        {
            "environment": {"name": "probe-reward-depends-on-action", "num_envs": 2},
            "network": "linear",
            "updater": "dqn",
            "replay": {"prefill": str(tmp_path / "data.npz"), "batch_size": 4},
            "normalize": {"observation": True, "reward": True},
            "tracer": {"gamma": GAMMA},
            "train": {"steps": 60, "unroll": 3, "start": 0},
        }
    )
    engine = loop.make_loop(build(recipe))
    progress, _ = engine.advance(engine.begin(), 1)
    statistics = progress.agent.learner.statistics
    obs, rewards, first = data.observations[""], data.rewards, data.ends
    first = np.concatenate([[True], first[:-1]])
    rows, sums = [], []
    unrolled = jax.tree.map(lambda leaf: np.asarray(leaf[0]), progress.unroll)
    for env in range(2):
        share = slice(300 * env, 300 * (env + 1))
        rows += [*obs[share], *unrolled.obs[:, env]]
        running = 0.0
        starts = np.concatenate([first[share], unrolled.first[:, env]])
        starts[0] = True
        every = np.concatenate([rewards[share], unrolled.reward[:, env]])
        for reward, start in zip(every, starts, strict=True):
            running = reward + GAMMA * (0.0 if start else running)
            sums.append(running)
    assert statistics.observation.count[0] == statistics.returns.count[0] == 606
    found = [statistics.observation.mean[0][0], statistics.observation.variance[0][0]]
    expected = [np.mean(rows, axis=0), np.var(rows, axis=0)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    found = [statistics.returns.mean[0], statistics.returns.variance[0]]
    np.testing.assert_allclose(found, [np.mean(sums), np.var(sums)], rtol=1e-4)


def test_acting_normalizes_observations_as_learning_does():
    agent, states = learn_unrolls()
    raw = jax.tree.map(lambda leaf: leaf[0], unroll(9).obs)
    acting = agent.acting(states[3])
    for act in (agent.policy.explore, agent.policy.exploit):
        decision, _ = act(acting, raw, (), np.zeros(ENVS, bool), ())
        for member in ("place", "image", "planes"):
            expected = normalized(member, raw[member], 3)
            np.testing.assert_allclose(
                decision.action[member], expected, rtol=1e-3, atol=1e-6
            )


def test_observations_without_floats_and_images_are_refused():
    recipe = {"environment": "FrozenLake-v1", "updater": "a2c"}
    recipe["normalize"] = {"observation": True}
    with pytest.raises(
        RlcliError, match="found neither floats nor images to normalize in Discrete"
    ):
        build(load_recipe(recipe))
    recipe["normalize"] = {"observation": False, "reward": True}
    assert load_recipe(resolve(load_recipe(recipe))) == load_recipe(recipe)
    build(load_recipe(recipe))


@pytest.mark.parametrize("key", ["observation_clip", "reward_clip"])
def test_the_bounds_are_options_of_a_recipe(key):
    recipe = {"environment": "CartPole-v1", "updater": "a2c"}
    assert getattr(load_recipe(recipe).normalize, key) == 10
    for value in (2.5, None):
        loaded = load_recipe({**recipe, "normalize": {key: value}})
        assert getattr(loaded.normalize, key) == value
        assert load_recipe(resolve(loaded)) == loaded
    for value in (0, -1, {"from": 1, "to": 2}):
        with pytest.raises(RlcliError, match=f"`{key}`"):
            load_recipe({**recipe, "normalize": {key: value}})


BASE = {
    "environment": {"name": "MountainCar-v0", "num_envs": 2, "time_limit": 6},
    "network": "linear",
    "updater": "a2c",
    "normalize": {"observation": True, "reward": True},
    "train": {"steps": 64, "unroll": 4, "seeds": 2, "checkpoint": {"every": 32}},
}


@pytest.mark.slow
def test_each_seed_of_a_run_has_its_own_statistics():
    setup = build(load_recipe(BASE))
    engine = loop.make_loop(setup)
    progress, seen = engine.begin(), []
    for _ in range(5):
        progress, _ = engine.advance(progress, 1)
        seen.append(np.asarray(progress.unroll.obs))
    acting = setup.agent.acting(progress.agent)
    rows = np.concatenate(seen, axis=1).reshape(2, -1, 2).astype(np.float64)
    assert not np.array_equal(rows[0], rows[1])
    (mean,), (variance,) = acting.observation.mean, acting.observation.variance
    np.testing.assert_allclose(mean, rows.mean(1), rtol=1e-4)
    np.testing.assert_allclose(variance, rows.var(1), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MountainCar-v0", "gymnasium/MountainCar-v0"])
def test_an_interrupted_run_resumes_with_its_statistics(name, tmp_path):
    recipe = {**BASE, "environment": {**BASE["environment"], "name": name}}
    rlcli.train(recipe, quiet=True, run=tmp_path / "whole")
    steps = rlcli.chunks(recipe, quiet=True, run=tmp_path / "left")
    next(steps)
    steps.close()
    rlcli.resume(tmp_path / "left", quiet=True)
    whole, left = (tmp_path / run for run in ("whole", "left"))
    last = "checkpoints/000000064.pkl.lz4"
    for saved, what in ((last, "progress"), ("policy.pkl.lz4", "acting")):
        expected, actual = (checkpoint.read(run / saved)[what] for run in (whole, left))
        assert set(actual) == set(expected)
        assert [
            k for k in expected if actual[k].tobytes() != expected[k].tobytes()
        ] == []
    assert {"observation/count", "observation/mean/0"} <= set(expected)
    assert expected["observation/count"].tolist() == [64, 64]
    assert read_rows(whole) == read_rows(left)
    assert np.isfinite(rlcli.eval(tmp_path / "left", episodes=2)["return"]["mean"])
