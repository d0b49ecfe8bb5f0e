"""Reset options: every episode of a Gymnasium environment draws numbers."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from policy_files import write_policy

import rlcli
from rlcli import recipe
from rlcli.assembly import build
from rlcli.environments.adapters.host import episode_seed
from rlcli.environments.adapters.reset_options import draw_numbers
from rlcli.errors import RlcliError
from rlcli.replays.datasets.dataset_files import load_dataset
from rlcli.schedules import RandomNumber

STEPS = 3


class Spring(gymnasium.Env):
    """Pays its stiffness in each of three steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.stiffness, self.time = options["stiffness"], 0
        assert set(options) == {"stiffness", "mass"}
        return np.float32([self.stiffness]), {}

    def step(self, action):
        self.time += 1
        obs = np.float32([self.stiffness])
        return obs, self.stiffness, self.time == STEPS, False, {}


@pytest.fixture(autouse=True, scope="module")
def registered():
    gymnasium.register("RandomSpring-v0", Spring)
    yield
    del gymnasium.registry["RandomSpring-v0"]


EACH = {"stiffness": {"uniform": [1, 2]}, "mass": {"choice": [1, 5]}}
ENVIRONMENT = {"name": "gymnasium/RandomSpring-v0", "num_envs": 2, "each": EACH}
DATA = {
    "environment": ENVIRONMENT,
    "network": {"name": "mlp", "layers": [4]},
    "updater": "ppo",
    "train": {"steps": 64, "unroll": 8},
}


def test_numbers_are_those_of_the_seed_of_the_episode():
    setup = build(recipe.load_recipe(DATA))
    env = setup.environment
    state, obs = env.reset(np.uint32([7]))
    numbers = recipe.load_recipe(DATA).random_numbers
    for episode in range(3):
        expected = [draw_numbers(numbers, episode_seed(7, b, episode)) for b in (0, 1)]
        for name, values in env.parameters(state).items():
            np.testing.assert_allclose(values[0], [each[name] for each in expected])
        np.testing.assert_allclose(obs[0, :, 0], env.parameters(state)["stiffness"][0])
        for _ in range(STEPS):
            state, timestep = env.step(state, np.zeros((1, 2), np.int32))
            obs = timestep.obs
    env.host.close(state)


def test_a_restored_episode_has_its_numbers():
    env = build(recipe.load_recipe(DATA)).environment
    state, _ = env.reset(np.uint32([7]))
    for _ in range(STEPS + 1):
        state, _ = env.step(state, np.zeros((1, 2), np.int32))
    restored, warning = env.host.restore(env.host.save(state))
    assert warning == ""
    before, after = env.parameters(state), env.parameters(restored)
    np.testing.assert_array_equal(before["stiffness"], after["stiffness"])
    for each in (state, restored):
        env.host.close(each)


def test_numbers_of_many_episodes_have_their_distribution(is_uniform):
    number = {"a": RandomNumber("uniform", (1.0, 3.0))}
    sample = [draw_numbers(number, seed)["a"] for seed in range(2_000)]
    assert is_uniform(np.array(sample)[:, None], 1, 3)


@pytest.mark.slow
def test_the_return_is_by_value_and_data_have_the_numbers(tmp_path):
    policy = write_policy(tmp_path, DATA, (0,))
    result = rlcli.eval(policy, episodes=20)
    (row,) = result["seeds"]
    stiffness = np.array(row["parameters"]["stiffness"])
    assert len(np.unique(stiffness)) == len(stiffness) == 20
    np.testing.assert_allclose(row["returns"], STEPS * stiffness, rtol=1e-6)
    assert {each["from"] for each in result["parameters"]["mass"]} == {1, 5}
    rlcli.collect(policy, episodes=4)
    data = load_dataset(tmp_path / "dataset.npz")
    np.testing.assert_allclose(
        data.returns, STEPS * data.parameters["stiffness"], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"each": {"stiffness": [1, 2]}}, "every episode draws `stiffness`"),
        ({"each": {"stiffness": {"uniform": [2, 1]}}}, "begins at 2"),
        ({"vectorization": "own"}, "its own vector cannot draw"),
    ],
)
def test_what_an_environment_on_the_host_cannot_draw_is_refused(change, message):
    with pytest.raises(RlcliError, match=message):
        build(recipe.load_recipe({**DATA, "environment": {**ENVIRONMENT, **change}}))


@pytest.mark.slow  # processes start
def test_processes_draw_the_same_numbers():
    spec = {"name": "gymnasium/CartPole-v1", "num_envs": 2}
    each = {"low": {"uniform": [-0.2, -0.1]}, "high": {"choice": [-0.1]}}
    first = []
    for vectorization in ("sync", "async"):
        section = {**spec, "each": each, "vectorization": vectorization}
        env = build(recipe.load_recipe({**DATA, "environment": section})).environment
        state, obs = env.reset(np.uint32([7]))
        first.append(obs)
        assert np.all((obs >= -0.2) & (obs <= -0.1))
        env.host.close(state)
    np.testing.assert_array_equal(*first)
