"""Hindsight replay against a list of steps in NumPy."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilation import FAST_COMPILATION
from scipy import stats

from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.replays.hindsight import hindsight
from rlcli.types import Transition

STRATEGIES = ("future", "final", "episode")
# (window, unroll, num_envs, capacity)
SIZES = [(3, 1, 2, 40), (1, 1, 1, 30), (1, 4, 3, 60), (2, 5, 2, 40)]
STEPS = 60  # of each environment: the rings wrap around


def goal_reward(achieved, desired):
    """Numbers that identify both goals; the discount is 0 where they are equal."""
    return achieved * 1000.0 + desired, (achieved != desired).astype(jnp.float32)


def goal_stream(num_envs, seed):
    """Steps `[STEPS, num_envs]`; step t of environment i achieves goal t · 10 + i."""
    rng = np.random.default_rng(seed)
    last = rng.random((STEPS, num_envs)) < 0.2
    first = np.concatenate([np.ones((1, num_envs), bool), last[:-1]])
    number = np.arange(STEPS, dtype="i4")[:, None] * 10 + np.arange(
        num_envs, dtype="i4"
    )
    desired = -np.cumsum(first, axis=0, dtype="i4")  # the same in an episode

    def observe(achieved):
        return {
            "observation": achieved.astype("f4"),
            "achieved_goal": achieved,
            "desired_goal": desired,
        }

    return Transition(
        obs=observe(number - 10),
        action=number,
        reward=rng.normal(size=last.shape).astype("f4"),
        discount=1.0 - (last & (rng.random(last.shape) < 0.5)).astype("f4"),
        next_obs=observe(number),
        first=first,
        last=last,
        extras={},
    )


def samples_of(replay, steps, unroll, draws):
    """The samples after all steps, as one `Transition` `[window, draws · N]`."""

    def cut(start):
        return jax.tree.map(lambda leaf: leaf[start : start + unroll], steps)

    state = jax.jit(replay.init)(cut(0))
    add = jax.jit(replay.add, compiler_options=FAST_COMPILATION)
    for count, start in enumerate(range(0, STEPS, unroll)):
        state = add(state, cut(start), np.int32(count))

    def sample(key):
        return replay.sample(state, np.int32(STEPS // unroll), replay.draw(key))

    draw = jax.jit(jax.vmap(sample), compiler_options=FAST_COMPILATION)
    keys = jax.random.split(jax.random.key(0), draws)
    batch, weight, _ = jax.device_get(draw(keys))
    assert np.all(weight == 1)
    return jax.tree.map(
        lambda leaf: np.moveaxis(leaf, 0, 1).reshape(leaf.shape[1], -1), batch
    )


def allowed_goals(steps, time, env, oldest, strategy):
    """The goals that a step may get: a loop over the steps of its episode."""
    begin = end = time
    while not steps.last[end, env] and end + 1 < STEPS:
        end += 1
    while not steps.first[begin, env] and begin > oldest:
        begin -= 1
    times = {
        "future": range(time, end + 1),
        "final": [end],
        "episode": range(begin, end + 1),
    }[strategy]
    return [t * 10 + env for t in times]


@pytest.mark.parametrize(
    ("window", "unroll", "num_envs", "capacity", "strategy"),
    [
        pytest.param(*size, strategy, marks=() if i == j else pytest.mark.slow)
        for i, size in enumerate(SIZES)
        for j, strategy in enumerate(STRATEGIES)
    ],
)
def test_goals_are_those_that_the_episode_achieved(
    window, unroll, num_envs, capacity, strategy
):
    replay = hindsight(
        window,
        unroll,
        num_envs,
        goal_reward,
        strategy=strategy,
        capacity=capacity,
        batch_size=64,
    )
    steps = goal_stream(num_envs, seed=1)
    batch = samples_of(replay, steps, unroll, draws=12)
    oldest = STEPS - capacity // (num_envs * unroll) * unroll
    goals = collections.defaultdict(list)
    for column in range(batch.reward.shape[1]):
        time, env = divmod(int(batch.action[0, column]), 10)
        assert oldest <= time <= STEPS - window
        rows = slice(time, time + window)
        goal = batch.obs["desired_goal"][:, column]
        np.testing.assert_array_equal(batch.next_obs["desired_goal"][:, column], goal)
        achieved = batch.next_obs["achieved_goal"][:, column]
        np.testing.assert_array_equal(achieved, steps.action[rows, env])
        last = steps.last[rows, env]
        if goal[0] < 0:  # its own goal
            np.testing.assert_array_equal(goal, steps.obs["desired_goal"][rows, env])
            expected = steps.reward[rows, env], steps.discount[rows, env], last
        else:
            assert goal[0] in allowed_goals(steps, time, env, oldest, strategy)
            is_reached = achieved == goal
            expected = achieved * 1000.0 + goal, 1.0 - is_reached, last | is_reached
            assert len(set(goal)) == 1  # the same in the whole window
            goals[time, env].append(goal[0])
        found = (leaf[:, column] for leaf in (batch.reward, batch.discount, batch.last))
        for value, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, other)
    share = sum(map(len, goals.values())) / batch.reward.shape[1]
    assert share == pytest.approx(4 / 5, abs=0.06)
    assert len(goals) == (STEPS - oldest - window + 1) * num_envs  # all windows


# With "final", a step has one allowed goal.
@pytest.mark.parametrize(
    "strategy", ["future", "episode", pytest.param("final", marks=pytest.mark.slow)]
)
def test_all_allowed_goals_are_equally_likely(strategy):
    replay = hindsight(
        1, 1, 1, goal_reward, strategy=strategy, capacity=30, batch_size=512
    )
    steps = goal_stream(1, seed=3)
    batch = samples_of(replay, steps, 1, draws=20)
    goals = collections.defaultdict(collections.Counter)
    for action, goal in zip(batch.action[0], batch.obs["desired_goal"][0], strict=True):
        if goal >= 0:
            goals[int(action)][int(goal)] += 1
    pairs = []
    for action, counts in goals.items():
        allowed = allowed_goals(steps, action // 10, 0, STEPS - 30, strategy)
        assert set(counts) == set(allowed)
        mean = sum(counts.values()) / len(allowed)
        pairs += [(count, mean) for count in counts.values() if len(allowed) > 1]
    if pairs:
        found, expected = map(np.array, zip(*pairs, strict=True))
        statistic = np.sum((found - expected) ** 2 / expected)
        degrees = len(pairs) - sum(len(counts) > 1 for counts in goals.values())
        assert stats.chi2.sf(statistic, degrees) > 1e-3


def test_without_new_goals_samples_are_those_of_the_uniform_replay():
    replay = hindsight(1, 4, 3, goal_reward, k=0, capacity=60, batch_size=64)
    steps = goal_stream(3, seed=1)
    batch = samples_of(replay, steps, 4, draws=4)
    for column, number in enumerate(batch.action[0]):
        time, env = divmod(int(number), 10)
        jax.tree.map(
            lambda found, original, where=(time, env), column=column: (
                np.testing.assert_array_equal(found[0, column], original[where])
            ),
            batch,
            steps,
        )


RECIPE = {
    "environment": {"name": "BitFlip-v0", "bits": 4, "num_envs": 2},
    "updater": "dqn",
    "network": {"name": "mlp", "layers": [8]},
    "replay": {"name": "hindsight", "capacity": 100},
    "train": {"steps": 400},
}


def built(**changed):
    return build(recipe.load_recipe(RECIPE | changed))


def test_hindsight_builds_with_goals():
    assert built().agent
    robot = {"name": "PointRobot-v0", "goals": True}
    assert built(environment=robot, updater="ddpg", train={"steps": 400}).agent


@pytest.mark.parametrize(
    "environment",
    [
        {"name": "CartPole-v1"},
        {"name": "PointRobot-v0"},
        {"name": "BitFlip-v0", "wrappers": ["flatten"]},
        {
            "name": "PointRobot-v0",
            "goals": True,
            "wrappers": [{"name": "entries", "of": [0]}],
        },
        {"name": "BitFlip-v0", "wrappers": [{"name": "reward_noise", "scale": 1.0}]},
        {
            "name": "PointRobot-v0",
            "goals": True,
            "num_envs": 2,
            "each": {"goal_radius": [0.1, 0.2]},
        },
    ],
)
def test_hindsight_without_goals_is_refused(environment):
    updater = "ddpg" if environment["name"] == "PointRobot-v0" else "dqn"
    with pytest.raises(RlcliError, match="reward is a function of goals") as error:
        built(environment=environment, updater=updater)
    assert "BitFlip-v0" in error.value.hint


def test_hindsight_uses_the_scaled_reward_of_a_wrapper():
    scaled = {"name": "scale_reward", "factor": 2.0}
    setup = built(environment={"name": "BitFlip-v0", "wrappers": [scaled]})
    bits = np.zeros(15, bool)
    reward, discount = setup.environment.goal_reward(bits, ~bits)
    assert (float(reward), float(discount)) == (-2.0, 1.0)
    reward, discount = setup.environment.goal_reward(bits, bits)
    assert (float(reward), float(discount)) == (0.0, 0.0)
