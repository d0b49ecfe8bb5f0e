"""Evaluator: number, selection and returns of evaluated episodes."""

import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from policy_files import draw_acting
from tiers import quick_first

import rlcli
from rlcli import recipe
from rlcli.assembly import build
from rlcli.environments.adapters.host import episode_seed, to_host_environment
from rlcli.errors import RlcliError
from rlcli.evaluation.make_evaluator import evaluation_parts
from rlcli.loop import evaluator as evaluator_module
from rlcli.loop.evaluator import Evaluator
from rlcli.loop.progress import EVALUATION
from rlcli.runs.metrics import read_metrics
from rlcli.types import START, Clock, Core, Inputs, TimeStep

LIMITED = {"name": "probe-truncation", "num_envs": 3}  # 1 for each of its 5 steps
NETWORK = {"name": "mlp", "layers": [8]}


LOOPS = pytest.mark.parametrize("is_host", [False, True], ids=["compiled", "host"])
SLOW_ON_HOST = pytest.mark.parametrize(
    "is_host", quick_first([False, True]), ids=["compiled", "host"]
)


def make_evaluator(
    environment,
    seeds=(0, 1),
    episodes_per_env=2,
    epsilon=0.5,
    is_host=False,
    **keywords,
) -> Evaluator:
    data = {
        "environment": environment,
        "network": NETWORK,
        "policy": {"name": "epsilon_greedy", "epsilon": epsilon},
        "updater": "q_learning",
    }
    setup = build(recipe.load_recipe(data), seeds)
    env, agent = setup.environment, setup.agent
    env = to_host_environment(env, len(seeds)) if is_host else env
    parts = env, agent.policy
    evaluator = Evaluator(lambda _: parts, seeds, episodes_per_env, **keywords)
    evaluator.acting = draw_acting(setup)
    return evaluator


@pytest.mark.slow
def test_every_environment_counts_exactly_episodes_per_env_episodes():
    evaluator = make_evaluator(LIMITED, episodes_per_env=4)
    result = evaluator.evaluate(evaluator.acting)
    assert result.returns.shape == result.lengths.shape == (2, 3 * 4)
    assert np.all(result.returns == 5)
    assert np.all(result.lengths == 5)
    assert result.num_cut == 0


@pytest.mark.slow
def test_evaluation_does_not_favour_short_episodes():
    # Counting the first episodes to finish would favour short ones.
    evaluator = make_evaluator(
        {"name": "CartPole-v1", "num_envs": 4},
        episodes_per_env=3,
        epsilon=1.0,
        explore=True,
    )
    lengths = evaluator.evaluate(evaluator.acting).lengths
    observed = [[[] for _ in range(4)] for _ in range(2)]
    before = None
    for step, _ in evaluator._steps(evaluator.acting, 0, START):
        if step is None:
            break
        if step.action is None:
            continue
        now = np.asarray(step.length)
        for row, index in np.ndindex(2, 4):
            if before is not None and now[row, index] == 0:
                observed[row][index].append(before[row, index] + 1)
        before = now
    for row, index in np.ndindex(2, 4):
        ours = lengths.reshape(2, 4, 3)[row, index]
        first = observed[row][index][:3]  # the evaluation stops before the last step
        assert ours[: len(first)].tolist() == first
        assert len(first) >= 2


def test_the_evaluation_index_determines_the_episodes():
    evaluator = make_evaluator(
        {"name": "CartPole-v1", "num_envs": 4}, episodes_per_env=1
    )
    first, again, other = (
        evaluator.evaluate(evaluator.acting, index) for index in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.returns, again.returns)
    assert np.any(first.returns != other.returns)


@pytest.mark.slow
def test_exploit_is_deterministic_and_explore_is_not():
    probe = {"name": "probe-reward-depends-on-action", "num_envs": 50}
    # With this bias action 1 has the higher value.
    better = np.array([[0.0, 1.0]] * 2, np.float32)
    for explore, expected in ((True, {-1.0, 1.0}), (False, {1.0})):
        evaluator = make_evaluator(
            probe, episodes_per_env=1, epsilon=1.0, explore=explore
        )
        head = {**evaluator.acting["q"]["linear_1"], "b": better}
        params_with_bias = {"q": {**evaluator.acting["q"], "linear_1": head}}
        assert set(evaluator.evaluate(params_with_bias).returns.ravel()) == expected


@SLOW_ON_HOST
def test_endless_episodes_are_truncated_and_counted(is_host, monkeypatch):
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", 7)
    endless = {**LIMITED, "time_limit": None}
    evaluator = make_evaluator(endless, is_host=is_host)
    result = evaluator.evaluate(evaluator.acting)
    assert np.all(result.lengths == 7)
    assert np.all(result.returns == 7)
    assert result.num_cut == 2 * 3 * 2  # seeds, environments, episodes


@SLOW_ON_HOST
def test_a_maximum_that_no_episode_reaches_truncates_none(is_host, monkeypatch):
    # All environments together make 3 × 35 steps, and each of them 35.
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", 12)
    evaluator = make_evaluator(LIMITED, episodes_per_env=7, is_host=is_host)
    result = evaluator.evaluate(evaluator.acting)
    assert np.all(result.lengths == 5)
    assert np.all(result.returns == 5)
    assert result.num_cut == 0


TWO_STEPS = {"name": "probe-two-steps", "num_envs": 3}


@pytest.mark.parametrize(
    ("environment", "length", "is_host"),
    quick_first(
        [
            (LIMITED, 5, True),
            (TWO_STEPS, 2, False),
            (LIMITED, 5, False),
            (TWO_STEPS, 2, True),
        ],
        quick=2,
    ),
)
def test_an_episode_that_ends_at_the_maximum_is_not_counted_as_cut(
    environment, length, is_host, monkeypatch
):
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", length)
    evaluator = make_evaluator(environment, is_host=is_host)
    result = evaluator.evaluate(evaluator.acting)
    assert np.all(result.lengths == length)
    assert result.num_cut == 0


@pytest.mark.parametrize(("limit", "length"), quick_first([(None, 12), (5, 5)]))
def test_recorded_transitions_end_with_their_own_episode(limit, length, monkeypatch):
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", 12)
    evaluator = make_evaluator({**LIMITED, "time_limit": limit})
    rows = list(itertools.islice(evaluator.transitions(evaluator.acting), 30))
    time = np.arange(1, 31)[:, None, None]
    expected = np.broadcast_to(time % length == 0, (30, 2, 3))
    np.testing.assert_array_equal([row.last for row in rows], expected)
    first = np.concatenate([np.ones((1, 2, 3), bool), expected[:-1]])
    np.testing.assert_array_equal([row.first for row in rows], first)
    assert all(np.all(row.discount == 1) for row in rows)


@pytest.mark.slow
def test_the_rewards_of_evaluation_steps_sum_to_the_return():
    probe = {"name": "probe-two-steps", "num_envs": 1}  # pays 0, then 1
    evaluator = make_evaluator(probe, (0,), episodes_per_env=2, recording=True)
    observed = [
        (int(step.length[0, 0]), float(step.reward[0, 0]), image.shape)
        for step, image in evaluator.frames(evaluator.acting)
    ]
    shape = (150, 300, 3)
    assert observed == [
        (0, 0, shape),
        (1, 0, shape),
        (0, 1, shape),
        (1, 0, shape),
    ]


@pytest.mark.parametrize("index", [-1, 2**31])
def test_a_seed_of_episodes_that_is_no_int32_is_refused(index):
    evaluator = make_evaluator({"name": "probe-two-steps", "num_envs": 1}, (0,))
    with pytest.raises(RlcliError, match=r"from 0 to 2,147,483,647, got"):
        evaluator.evaluate(evaluator.acting, index)


def greedy(params: dict, obs: np.ndarray) -> int:
    """The best action of a network with one hidden layer, in NumPy."""
    hidden = np.maximum(obs @ params["linear"]["w"] + params["linear"]["b"], 0)
    return int(np.argmax(hidden @ params["linear_1"]["w"] + params["linear_1"]["b"]))


@pytest.mark.parametrize(
    ("episodes_per_env", "limit"), quick_first([(2, 500), (4, 10), (1, 500)], quick=2)
)
def test_returns_equal_those_of_a_greedy_loop_over_gymnasium(
    episodes_per_env, limit, monkeypatch
):
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", limit)
    seeds, num_envs, evaluation_index = (0, 5), 3, 2
    data = {"name": "gymnasium/CartPole-v1", "num_envs": num_envs}
    evaluator = make_evaluator(data, seeds=seeds, episodes_per_env=episodes_per_env)
    result = evaluator.evaluate(evaluator.acting, evaluation_index)
    env = gymnasium.make("CartPole-v1")
    expected = np.zeros((len(seeds), num_envs, episodes_per_env))
    num_cut = 0
    for row, seed in enumerate(seeds):
        params = jax.tree.map(lambda leaf, at=row: leaf[at], evaluator.acting)
        sequence = np.random.SeedSequence([seed, EVALUATION, evaluation_index])
        number = int(sequence.generate_state(1)[0])
        for index in range(num_envs):
            for episode in range(episodes_per_env):
                obs, _ = env.reset(seed=episode_seed(number, index, episode))
                done = is_cut = False
                while not (done or is_cut):
                    step_result = env.step(greedy(params["q"], obs))
                    obs, reward, terminated, truncated, _ = step_result
                    expected[row, index, episode] += reward
                    done = terminated or truncated
                    is_cut = not done and expected[row, index, episode] == limit
                num_cut += is_cut
    env.close()
    np.testing.assert_array_equal(result.returns, expected.reshape(len(seeds), -1))
    np.testing.assert_array_equal(result.lengths, result.returns)
    assert result.num_cut == num_cut
    # With a small limit some episodes end before, so the others are out of phase.
    assert (num_cut == 0) if limit == 500 else (0 < num_cut < result.returns.size)


def test_a_host_environment_is_closed_even_if_the_iterator_is_not_exhausted():
    evaluator = make_evaluator(
        {"name": "gymnasium/CartPole-v1"}, seeds=(0,), episodes_per_env=1
    )
    closed = []
    host = evaluator._host_env.host
    assert host is not None
    evaluator._host_env = evaluator._host_env._replace(
        host=host._replace(close=lambda state: closed.append(host.close(state)))
    )
    steps = evaluator._steps(evaluator.acting, 0, START)
    next(steps)
    steps.close()
    assert len(closed) == 1


def _number_environment(*, number: float = 0.0) -> Core:
    """Episodes of one step whose reward is the number."""

    def step(state, action, noise):
        obs, reward = jnp.zeros(1), jnp.float32(number)
        return state, TimeStep(obs, obs, reward, jnp.float32(0), jnp.bool_(True), {})

    box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return Core(lambda key: ((), jnp.zeros(1)), step, box, gymnasium.spaces.Discrete(2))


def falling(per: str) -> dict:
    number = {"from": 1, "to": 0, "over": 40, "per": per}
    name = f"{__name__}:{_number_environment.__name__}"
    return {
        "environment": {"name": name, "number": number},
        "updater": "q_learning",
        "train": {"steps": 40, "evaluate": {"every": 10, "episodes": 2}},
    }


@pytest.mark.parametrize("per", ["step", "episode"])
@pytest.mark.slow
def test_an_evaluation_sees_the_time_after_the_steps_so_far(per, tmp_path):
    """1 − T / 40 after T steps, which are T episodes; so does the policy's file."""
    run = rlcli.train(falling(per), seeds=2, run=tmp_path / "run", quiet=True)
    rows = [row for row in read_metrics(run) if "evaluation" in row]
    for seed in (0, 1):
        found = [r["evaluation"]["mean"] for r in rows if r["seed"] == seed]
        np.testing.assert_allclose(found, [0.75, 0.5, 0.25, 0])
    best = rlcli.eval(run, best=True, episodes=2, trust=True)
    np.testing.assert_allclose([each["mean"] for each in best["seeds"]], 0.75)
    last = rlcli.eval(run, episodes=2, trust=True)
    np.testing.assert_allclose([each["mean"] for each in last["seeds"]], 0)


@pytest.mark.slow
def test_the_steps_of_an_evaluation_are_those_of_its_time():
    """On the host, as for data sets; the seeds may have different times."""
    parsed = recipe.load_recipe(falling("step"))
    setup = build(parsed, (0, 1))
    evaluator = Evaluator(evaluation_parts(parsed, setup), (0, 1), 1)
    clock = Clock.zero(2)._replace(steps=np.array([10, 30], np.float32))
    acting = draw_acting(setup)
    result = evaluator.evaluate(acting, inputs=Inputs(clock))
    np.testing.assert_allclose(result.returns[:, 0], [0.75, 0.25])
    both = Clock.zero()._replace(steps=np.float32(30))
    (step,) = itertools.islice(evaluator.transitions(acting, inputs=Inputs(both)), 1)
    np.testing.assert_allclose(step.reward[:, 0], 0.25)
