"""Collect: the episodes of a policy as a data set."""

import numpy as np
import pytest
from gymnasium import spaces
from policy_files import write_policy
from tiers import quick_first

import rlcli
from rlcli.errors import RlcliError
from rlcli.evaluation.collect import _find_episodes, _to_arrays
from rlcli.replays.datasets.dataset_files import load_dataset
from rlcli.types import External, Transition
from rlcli.xla.machine import format_size

SMALL = {"name": "mlp", "layers": [4]}
DQN = {"environment": "CartPole-v1", "network": SMALL, "updater": "dqn"}
PENDULUM = {
    "environment": {"name": "Pendulum-v1", "time_limit": 7},
    "network": SMALL,
    "updater": "ppo",
}


def collect(tmp_path, data=DQN, seeds=(0,), **options):
    """The result of collecting from an untrained policy, and the data set."""
    policy = write_policy(tmp_path, data, seeds)
    result = rlcli.collect(policy, **options)
    file = tmp_path / "dataset.npz"
    assert result["file"] == str(file)
    assert result["bytes"] == file.stat().st_size
    return result, load_dataset(file)


@pytest.fixture(scope="module")
def episodes(tmp_path_factory):
    """The folder of a policy, and the result and data of six of its episodes."""
    folder = tmp_path_factory.mktemp("episodes")
    return folder, *collect(folder, episodes=6, seed=3)


def test_episodes_follow_the_environment(episodes):
    import gymnasium

    _, result, data = episodes
    assert result["episodes"] == len(data.returns) == 6
    assert result["return"]["mean"] == pytest.approx(data.returns.mean())
    check_dynamics(data, gymnasium.make("CartPole-v1").unwrapped)


@pytest.mark.slow
def test_the_numbers_that_an_episode_has_drawn_are_those_that_moved_it(tmp_path):
    import gymnasium

    each = {"length": {"uniform": [0.2, 2]}, "gravity": {"choice": [8, 12]}}
    environment = {"name": "CartPole-v1", "num_envs": 4, "each": each}
    train = {"evaluate": {"grid": {"length": [0.5]}}}  # data are of the training
    recipe = {**DQN, "environment": environment, "train": train}
    _, data = collect(tmp_path, recipe, episodes=7)
    numbers = data.parameters
    assert {k: v.shape for k, v in numbers.items()} == {"gravity": (7,), "length": (7,)}
    assert len(np.unique(numbers["length"])) == 7
    assert set(numbers["gravity"]) == {8, 12}
    check_dynamics(data, gymnasium.make("CartPole-v1").unwrapped)


def check_dynamics(data, env):
    """Compares the data with Gymnasium's CartPole of the parameters of each episode."""
    env.reset(seed=0)
    obs, episode = data.observations[""], 0
    for step in range(len(data.rewards)):
        for name, values in data.parameters.items():
            setattr(env, name, float(values[episode]))
        env.polemass_length = env.masspole * env.length
        env.state = obs[step].astype("f8")
        env.steps_beyond_terminated = None
        following, reward, terminated, _, _ = env.step(int(data.actions[""][step]))
        final = data.final_observations[""][episode]
        expected = final if data.ends[step] else obs[step + 1]
        np.testing.assert_allclose(following, expected, atol=1e-5)
        assert reward == data.rewards[step]
        assert terminated == data.terminations[step]
        episode += data.ends[step]


def test_episodes_are_those_of_an_evaluation(episodes):
    folder, _, data = episodes
    policy = folder / "policy.pkl.lz4"
    returns = rlcli.eval(policy, episodes=6, seed=3)["seeds"][0]["returns"]
    assert data.returns.tolist() == returns


@pytest.mark.slow
def test_the_seeds_of_a_run_contribute_equally(tmp_path):
    _, data = collect(tmp_path, PENDULUM, seeds=(0, 1), episodes=4)
    policy = tmp_path / "policy.pkl.lz4"
    rows = rlcli.eval(policy, episodes=2)["seeds"]
    expected = [value for row in rows for value in row["returns"]]
    np.testing.assert_allclose(sorted(data.returns), sorted(expected), rtol=1e-5)


@pytest.mark.slow
def test_a_truncated_episode_is_no_terminated_one(tmp_path):
    _, data = collect(tmp_path, PENDULUM, episodes=3)
    assert not data.terminations.any()
    assert np.flatnonzero(data.truncations).tolist() == [6, 13, 20]


def test_the_episode_of_an_agent_stops_where_it_ends_before_the_others():
    """The steps of its game that follow have discount 0, and are not its own."""
    discount = np.ones((5, 1, 2), "f4")
    discount[2:, 0, 0] = 0  # agent 0 ends at its third step, the game after the fifth
    last = np.zeros((5, 1, 2), bool)
    last[-1] = True
    step = np.arange(10, dtype="f4").reshape(5, 1, 2)
    rows = Transition(step, step, step, discount, step + 0.5, last, last, {})
    found = sorted(_find_episodes(rows, includes_partial=False))
    numbers = spaces.Box(-np.inf, np.inf, (), np.float32)
    data = _to_arrays(rows, found, None, External(numbers, numbers))
    assert data.rewards.tolist() == [0, 2, 4, 1, 3, 5, 7, 9]
    assert np.flatnonzero(data.terminations).tolist() == [2]
    assert np.flatnonzero(data.truncations).tolist() == [7]
    assert data.final_observations[""].tolist() == [4.5, 9.5]


@pytest.mark.slow
def test_a_number_of_steps_is_exact_and_cuts_the_last_episode(tmp_path):
    result, data = collect(tmp_path, PENDULUM, steps=10)
    assert result["steps"] == len(data.rewards) == 10
    assert np.flatnonzero(data.truncations).tolist() == [6, 9]
    assert len(data.final_observations[""]) == 2


@pytest.mark.slow
def test_actions_are_those_that_the_environment_executes(tmp_path):
    _, data = collect(tmp_path, PENDULUM, steps=50, explore=True)
    _, random = collect(tmp_path, PENDULUM, steps=50, random=True)
    for each in (data, random):
        assert np.all(np.abs(each.actions[""]) <= 2)
    assert np.std(random.actions[""]) > 0.8  # uniform in ±2: 1.15


@pytest.mark.slow
def test_the_metadata_tell_where_the_data_come_from(tmp_path):
    result, data = collect(tmp_path, steps=5, random=True)
    assert data.metadata["environment"]["name"] == "CartPole-v1"
    assert data.metadata["action_space"] == {"type": "Discrete", "n": 2, "start": 0}
    assert data.metadata["policy"] == result["policy"] == "random"
    assert len(data.metadata["recipe_sha256"]) == 64


@pytest.mark.slow
def test_equal_requests_give_equal_files(episodes, tmp_path):
    folder, result, _ = episodes
    again, _ = collect(tmp_path, episodes=6, seed=3)
    assert {**again, "file": result["file"]} == result
    first, second = (each / "dataset.npz" for each in (folder, tmp_path))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 1, "steps": 1}, "both `episodes` and `steps` are given"),
        ({"episodes": 0}, "`episodes` is `0`, expected an int ≥ 1"),
        ({"explore": True, "random": True}, "both `explore` and `random` are given"),
        ({"output": "data.txt"}, "`data.txt` is not the name of a data set"),
    ],
)
def test_requests_that_cannot_work_are_refused(tmp_path, options, message):
    with pytest.raises(RlcliError, match=message):
        rlcli.collect(write_policy(tmp_path, DQN), **options)


@pytest.mark.parametrize("key", ["steps", "episodes"])
@pytest.mark.parametrize("count", quick_first([10**15, 10**30]))
def test_more_steps_than_memory_are_refused_before_the_first(tmp_path, key, count):
    policy = write_policy(tmp_path, DQN, (0,))
    with pytest.raises(RlcliError, match=r"needs .* of memory, but only") as caught:
        rlcli.collect(policy, **{key: count})
    assert f"lower `--{key}`" in caught.value.hint
    # CartPole: 2 × (2 × 16 bytes of observations + 4 of the action + 10) each.
    if key == "steps":
        size = format_size(92 * count)
        assert f"recorded steps {size} ({count:,} steps)" in caught.value.message
    assert not (tmp_path / "dataset.npz").exists()
