"""Units: runs, data and policies where an environment's numbers are unusual."""

import functools
import itertools
import json

import jax
import numpy as np
import pytest
import unit_environments
from policy_files import write_policy

import rlcli
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.evaluation.render import _select_evaluator
from rlcli.recipe import load_recipe
from rlcli.replays.datasets.dataset_files import load_dataset
from rlcli.results.report.episode_views import view_episode
from rlcli.results.report.replayed_episodes import SeedResult, _Recorder
from rlcli.types import External

SMALL = {"name": "mlp", "layers": [8]}
COUNT = {"name": "unit_environments:Count", "start": 5}
CLONE = {
    "environment": COUNT,
    "network": SMALL,
    "updater": "behaviour_cloning",
    "replay": {"name": "dataset", "path": "data.npz", "batch_size": 64},
    "optimizer": {"name": "adam", "learning_rate": 0.03},
    "train": {"steps": 150, "evaluate": None, "checkpoint": None},
}
SHORT = {
    "ppo": {"steps": 128, "unroll": 64},
    "td3": {"steps": 60, "start": 20, "warmup": "random"},
    "sac": {"steps": 60, "start": 20, "warmup": "random"},
}


@functools.cache
def width_run(runs_folder, updater, w):
    """Evaluations and parameters after a short run in actions of half-width `w`."""
    data = {
        "environment": {"name": "unit_environments:Width", "w": w},
        "updater": updater,
        "network": SMALL,
        "train": SHORT[updater] | {"evaluate": {"episodes": 3}, "checkpoint": None},
    }
    run = rlcli.train(data, run=runs_folder / f"{updater}{w}", quiet=True)
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    returns = [row["evaluation"]["mean"] for row in rows if "evaluation" in row]
    policy = rlcli.load(run, trust=True)
    action, _ = policy.act(np.zeros(1, np.float32))
    return returns, jax.device_get(policy.params), action / w


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("updater", "w"), list(itertools.product(SHORT, (2.0**10, 2.0**-10)))
)
def test_the_same_task_in_other_units_is_the_same_run(updater, w, runs_folder):
    """A power of two changes no bit."""
    found, expected = (
        width_run(runs_folder, updater, w),
        width_run(runs_folder, updater, 1.0),
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("updater", SHORT)
def test_units_that_are_no_powers_of_two_only_round(updater, runs_folder):
    returns, _, action = width_run(runs_folder, updater, 1.0)
    for w in (0.001, 1000.0):
        found = width_run(runs_folder, updater, w)
        np.testing.assert_allclose(found[0], returns, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found[2], action, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.slow
def test_collected_data_have_the_numbers_of_the_environment(many, tmp_path):
    data = {
        "environment": COUNT | {"many": many},
        "network": SMALL,
        "updater": "ppo",
    }
    policy = write_policy(tmp_path, data)
    unit_environments.LOG.clear()
    rlcli.collect(policy, episodes=12, random=True, trust=True)
    found = load_dataset(tmp_path / "dataset.npz")
    assert set(found.observations[""].tolist()) == {3, 4, 5, 6, 7}
    assert set(found.final_observations[""].tolist()) == {8}
    played = {tuple(np.ravel(action).tolist()) for action in unit_environments.LOG}
    written = {tuple(np.ravel(each).tolist()) for each in found.actions[""]}
    assert written <= played
    assert {first for first, *_ in written} == {5, 6, 7}
    assert found.metadata["action_space"]["start"] == ([5, -1] if many else 5)
    # Read again, they are the canonical numbers of the policy.
    env = unit_environments.Count(many=many)
    external = External(env.observation_space, env.action_space)
    rows = found.to_transitions(external, "data", "environment")
    offset = np.array([5, -1]) if many else 5
    np.testing.assert_array_equal(rows.action, found.actions[""] - offset)
    np.testing.assert_array_equal(rows.obs, found.observations[""] - 3)
    np.testing.assert_array_equal(rows.next_obs, found.observations[""] - 2)


@pytest.mark.slow
def test_stacks_of_frames_have_the_numbers_of_the_environment(tmp_path):
    frames = SMALL | {"preprocess": [{"name": "frame_stack", "frames": 2}]}
    data = {"environment": COUNT, "network": frames, "updater": "ppo"}
    policy = write_policy(tmp_path, data)
    rlcli.collect(policy, episodes=1, trust=True)
    found = load_dataset(tmp_path / "dataset.npz")
    stacks = [[3, 3], [3, 4], [4, 5], [5, 6], [6, 7]]
    np.testing.assert_array_equal(found.observations[""], stacks)
    np.testing.assert_array_equal(found.final_observations[""], [[7, 8]])
    loaded = rlcli.load(policy, trust=True)
    assert loaded.spaces.observation == unit_environments.Count().observation_space


def write_data(file, actions):
    """Ten episodes of `Count`, with these actions."""
    steps = len(actions)
    ends = np.arange(1, steps + 1) % 5 == 0
    np.savez(
        file,
        observations=3 + np.arange(steps) % 5,
        actions=actions,
        rewards=np.ones(steps, np.float32),
        terminations=ends,
        truncations=np.zeros(steps, bool),
        final_observations=np.full(int(ends.sum()), 8),
    )


@pytest.mark.slow
def test_a_clone_plays_the_numbers_of_its_data(folder):
    steps = np.arange(50)
    write_data("data.npz", 5 + steps % 5 % 3)  # the action of observation o: 5 + ...
    policy = rlcli.load(rlcli.train(CLONE, run="run", quiet=True), trust=True)
    assert [policy.act(obs)[0] for obs in range(3, 8)] == [5, 6, 7, 5, 6]
    distribution = policy.distribution(np.int64(3))
    assert distribution.log_prob(np.int64(5)) > distribution.log_prob(np.int64(6))


@pytest.mark.parametrize("wrong", [0, 8])
def test_data_in_other_numbers_are_refused(wrong, folder):
    actions = np.full(50, 6)
    actions[7] = wrong
    write_data("data.npz", actions)
    message = rf"values outside Discrete\(3, start=5\), such as {wrong} in row 7"
    with pytest.raises(RlcliError, match=message):
        rlcli.train(CLONE, run="run", quiet=True)


@pytest.mark.slow
def test_a_report_numbers_actions_as_the_environment_does(tmp_path):
    data = {"environment": COUNT, "network": SMALL, "updater": "ppo"}
    policy = rlcli.load(write_policy(tmp_path, data), trust=True)
    result = SeedResult("run", 0, np.array([5.0]), np.array([5]), [0], False)
    episode = _Recorder(policy, 0).record(policy.make_env(), result, 0, 5)
    (chart,) = view_episode("", episode, result, 0).charts[-1:]
    assert chart.title == "Action probabilities"
    shown = json.dumps(chart.spec)
    assert [f"action {n}" in shown for n in (4, 5, 6, 7, 8)] == [0, 1, 1, 1, 0]
    assert episode.actions.min() >= 5


def test_messages_describe_the_spaces_of_the_environment():
    data = {"environment": "Pendulum-v1", "updater": "q_learning"}
    with pytest.raises(RlcliError, match=r"has Box\(1,\) in \[-2, 2\]"):
        build(load_recipe(data))


def test_films_show_the_actions_that_the_environment_gets(tmp_path):
    data = {"environment": COUNT, "network": SMALL, "updater": "ppo"}
    policy = write_policy(tmp_path, data)
    evaluator, acting = _select_evaluator(policy, False, 1, True)[2:4]
    unit_environments.LOG.clear()
    shown = [step.action for step, _ in evaluator.frames(acting)]
    assert shown.pop() is None
    np.testing.assert_array_equal(np.ravel(shown), unit_environments.LOG)
    assert np.min(shown) >= 5


@pytest.mark.slow
def test_the_density_of_actions_is_that_in_the_units_of_the_environment(tmp_path):
    data = {
        "environment": {"name": "unit_environments:Width", "w": 4.0},
        "network": SMALL,
        "updater": "ppo",
    }
    policy = rlcli.load(write_policy(tmp_path, data), trust=True)
    distribution = policy.distribution(np.zeros(1, np.float32))
    mean, log_scale = np.split(np.asarray(distribution.parameters), 2)
    np.testing.assert_allclose(distribution.mode(), 4 * mean, rtol=1e-6)
    deviation = 4 * np.exp(log_scale)
    entropy = np.sum(np.log(deviation) + 0.5 * np.log(2 * np.pi * np.e))
    assert distribution.entropy() == pytest.approx(entropy, rel=1e-4)
    action = np.array([1.0, -2.0], np.float32)
    density = -0.5 * ((action - 4 * mean) / deviation) ** 2 - np.log(deviation)
    expected = np.sum(density - 0.5 * np.log(2 * np.pi))
    assert distribution.log_prob(action) == pytest.approx(expected, rel=1e-4)
