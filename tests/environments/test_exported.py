"""Exported: what Gymnasium's own checker and its users say of our environments."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import rlcli
from rlcli import registry
from rlcli.environments import to_gymnasium, to_gymnasium_vector

NAMES = [
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCarContinuous-v0",
    "FrozenLakeNonSlippery-v0",
    "Blackjack-v1",
]


def natives():
    """The names of all of ours that can be made as they are."""
    for name in registry.names("environment"):
        # The bandit of MNIST wants a folder with the pictures.
        if name.endswith("/") or "MNIST" in name:
            continue
        if registry.find("environment", name).factory.__module__.startswith("rlcli."):
            yield name


def checked(core):
    env = to_gymnasium(core, time_limit=50, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Advice about the task itself, which Gymnasium's own environments get too.
        warnings.filterwarnings("ignore", ".*symmetric and normalized space.*")
        check_env(env, skip_render_check=False)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_has_nothing_to_say(name):
    checked(rlcli.make(name))


def test_nor_of_an_observation_without_bounds_that_has_members():
    checked(rlcli.make("CartPole-v1", wrappers=["expose_state"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in natives() if each not in NAMES])
def test_it_has_nothing_to_say_of_any_other(name):
    checked(rlcli.make(name))


def test_it_plays_as_the_original_does():
    ours = to_gymnasium(rlcli.make("CartPole-v1"), time_limit=500)
    theirs = gymnasium.make("CartPole-v1")
    obs, _ = ours.reset(seed=3)
    theirs.reset(seed=3)
    theirs.unwrapped.state = tuple(obs.astype(float))  # pyright: ignore
    for step in range(100):
        action = int(obs[2] + 0.5 * obs[3] > 0) if step < 60 else 0
        obs, *ours_say = ours.step(action)
        other, *theirs_say = theirs.step(action)
        assert np.allclose(obs, other, rtol=1e-3, atol=1e-4)
        assert ours_say[:3] == theirs_say[:3]
        if ours_say[1]:
            break
    assert 60 < step < 99


def test_a_time_limit_truncates_and_the_same_seed_gives_the_same_episodes():
    env = to_gymnasium(rlcli.make("Pendulum-v1"), time_limit=3)
    first = [env.reset(seed=1)[0], env.reset()[0]]
    again = [env.reset(seed=1)[0], env.reset()[0]]
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_the_vector_begins_again_in_the_step_that_ends_an_episode():
    env = to_gymnasium_vector(rlcli.make("CartPole-v1", num_envs=4))
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    for _ in range(30):
        obs, reward, terminated, truncated, infos = env.step(np.zeros(4, np.int64))
        assert reward.shape == terminated.shape == truncated.shape == (4,)
        if terminated.any():
            break
    assert np.array_equal(infos["_final_obs"], terminated)
    fallen = np.abs(np.stack(infos["final_obs"][terminated])[:, 2])
    assert np.all(fallen > np.radians(12))
    assert np.all(np.abs(obs[terminated]) <= 0.05)


def test_last_observations_have_the_form_that_gymnasiums_vectors_give_them():
    env = to_gymnasium_vector(rlcli.make("ConnectFour-v0", num_envs=2))
    env.reset(seed=0)
    told = {}
    while "final_obs" not in told:  # a full column ends a game
        obs, *_, told = env.step(np.array([0, 0]))
        assert obs in env.observation_space
    assert told["final_obs"].dtype == object
    for ended, last in zip(told["_final_obs"], told["final_obs"], strict=True):
        assert (last in env.single_observation_space) if ended else last is None


def test_what_is_handed_out_may_be_written_to():
    single = to_gymnasium(rlcli.make("CartPole-v1"))
    several = to_gymnasium_vector(rlcli.make("CartPole-v1", num_envs=2))
    for env, action in ((single, 0), (several, np.array([0, 0]))):
        for obs in (env.reset()[0], env.step(action)[0]):
            obs += 1


def test_what_is_no_core_or_no_vector_is_refused():
    with pytest.raises(ValueError, match="expected a pure core"):
        to_gymnasium(rlcli.make("CartPole-v1", num_envs=2))
    with pytest.raises(ValueError, match="expected a vector"):
        to_gymnasium_vector(rlcli.make("CartPole-v1"))
    with pytest.raises(gymnasium.error.ResetNeeded):
        to_gymnasium(rlcli.make("CartPole-v1")).step(0)
    with pytest.raises(gymnasium.error.ResetNeeded, match="before `render`"):
        to_gymnasium(rlcli.make("CartPole-v1"), render_mode="rgb_array").render()


@pytest.mark.slow
def test_stable_baselines_trains_on_it():
    library = pytest.importorskip("stable_baselines3")
    env = to_gymnasium(rlcli.make("CartPole-v1"), time_limit=500)
    model = library.PPO("MlpPolicy", env, n_steps=64, seed=0).learn(256)
    action, _ = model.predict(env.reset(seed=1)[0])
    assert action in env.action_space
