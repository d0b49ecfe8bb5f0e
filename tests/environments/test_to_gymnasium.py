"""To Gymnasium: Gymnasium's checker and Stable-Baselines3 accept environments."""

import warnings

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from tiers import quick_first

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


@pytest.fixture(scope="module")
def cart_pole():
    """A single CartPole; tests share its programs and reset it."""
    return to_gymnasium(rlcli.make("CartPole-v1"))


@pytest.fixture(scope="module")
def pendulum():
    return to_gymnasium(rlcli.make("Pendulum-v1"), time_limit=3)


@pytest.fixture(scope="module")
def cart_poles():
    """A vector of two."""
    return to_gymnasium_vector(rlcli.make("CartPole-v1", num_envs=2))


def to_checked_env(core):
    env = to_gymnasium(core, time_limit=50, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Advice about the task itself, which Gymnasium's own environments get too.
        warnings.filterwarnings("ignore", ".*symmetric and normalized space.*")
        check_env(env, skip_render_check=False)


@pytest.mark.parametrize("name", quick_first(NAMES, quick=3))
def test_gymnasiums_checker_finds_no_problem(name):
    to_checked_env(rlcli.make(name))


def test_the_checker_accepts_unbounded_observations_with_members():
    to_checked_env(rlcli.make("CartPole-v1", wrappers=["expose_state"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in natives() if each not in NAMES])
def test_the_checker_accepts_all_environments(name):
    to_checked_env(rlcli.make(name))


def test_it_matches_the_original_environment(cart_pole):
    ours, theirs = cart_pole, gymnasium.make("CartPole-v1")
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


def test_a_time_limit_truncates_and_the_same_seed_gives_the_same_episodes(pendulum):
    env = pendulum
    first = [env.reset(seed=1)[0], env.reset()[0]]
    again = [env.reset(seed=1)[0], env.reset()[0]]
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_the_vector_resets_in_the_step_that_ends_an_episode(cart_poles):
    env = cart_poles
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    for _ in range(30):
        obs, reward, terminated, truncated, infos = env.step(np.zeros(2, np.int64))
        assert reward.shape == terminated.shape == truncated.shape == (2,)
        if terminated.any():
            break
    assert np.array_equal(infos["_final_obs"], terminated)
    fallen = np.abs(np.stack(infos["final_obs"][terminated])[:, 2])
    assert np.all(fallen > np.radians(12))
    assert np.all(np.abs(obs[terminated]) <= 0.05)


def test_final_obs_has_the_format_of_gymnasiums_vectors():
    env = to_gymnasium_vector(rlcli.make("ConnectFour-v0", num_envs=2))
    env.reset(seed=0)
    told = {}
    while "final_obs" not in told:  # a full column ends a game
        obs, *_, told = env.step(np.array([0, 0]))
        assert obs in env.observation_space
    assert told["final_obs"].dtype == object
    for ended, last in zip(told["_final_obs"], told["final_obs"], strict=True):
        assert (last in env.single_observation_space) if ended else last is None


def test_returned_arrays_are_writable(cart_pole, cart_poles):
    for env, action in ((cart_pole, 0), (cart_poles, np.array([0, 0]))):
        for obs in (env.reset()[0], env.step(action)[0]):
            obs += 1


def test_cores_and_vectors_are_checked():
    with pytest.raises(ValueError, match="expected a core"):
        to_gymnasium(rlcli.make("CartPole-v1", num_envs=2))
    with pytest.raises(ValueError, match="expected a vector"):
        to_gymnasium_vector(rlcli.make("CartPole-v1"))
    with pytest.raises(gymnasium.error.ResetNeeded):
        to_gymnasium(rlcli.make("CartPole-v1")).step(0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        vector = to_gymnasium_vector(rlcli.make("CartPole-v1", num_envs=2))
        vector.step(np.array([0, 1]))
    with pytest.raises(gymnasium.error.ResetNeeded, match="before `render`"):
        to_gymnasium(rlcli.make("CartPole-v1"), render_mode="rgb_array").render()


@pytest.mark.parametrize("action", [2, -1, 0.0, np.array([0]), None, "left", [0, 1]])
def test_an_invalid_discrete_action_is_refused_as_in_gymnasium(cart_pole, action):
    theirs = gymnasium.make("CartPole-v1")
    theirs.reset(seed=0)
    with pytest.raises(AssertionError, match="invalid"):
        theirs.step(action)
    cart_pole.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match=r"not in Discrete\(2\)"):
        cart_pole.step(action)
    cart_pole.step(1)  # nothing is lost


def test_discrete_actions_may_have_any_integer_type(cart_pole):
    cart_pole.reset(seed=0)
    for action in (1, True, np.int32(1), np.array(1), np.uint8(0), jnp.int32(1)):
        cart_pole.step(action)


@pytest.mark.parametrize("action", [np.zeros(2), 0.0, np.array([np.nan]), ["a"]])
def test_an_action_of_another_shape_is_refused(pendulum, action):
    pendulum.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match="not in Box"):
        pendulum.step(action)


def test_values_outside_a_box_are_clipped_as_in_gymnasium(pendulum):
    ends = []
    for torque in (2.0, 50.0):
        pendulum.reset(seed=0)
        ends.append(pendulum.step(np.array([torque]))[0])  # of float64
    np.testing.assert_array_equal(*ends)
    theirs = gymnasium.make("Pendulum-v1")
    theirs.reset(seed=0)
    theirs.step(np.array([50.0]))


@pytest.mark.parametrize(
    "actions", [np.array([0, 2]), np.array([0]), np.zeros(2), [0, -1], 0]
)
def test_a_vector_refuses_invalid_actions_as_in_gymnasium(cart_poles, actions):
    theirs = gymnasium.make_vec("CartPole-v1", 2, "vector_entry_point")
    theirs.reset(seed=0)
    with pytest.raises(AssertionError, match="invalid"):
        theirs.step(actions)
    cart_poles.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match="not in MultiDiscrete"):
        cart_poles.step(actions)
    cart_poles.step(np.array([0, 1]))


def test_a_step_after_a_termination_warns_once_as_gymnasiums_cartpole_does(cart_pole):
    said = []
    for env in (gymnasium.make("CartPole-v1"), cart_pole):
        for _ in range(2):
            env.reset(seed=0)
            terminated = False
            while not terminated:
                _, _, terminated, *_ = env.step(0)
            with pytest.warns(UserWarning, match="undefined behavior") as caught:
                for _ in range(3):
                    env.step(0)
            said.append([str(each.message) for each in caught])
    assert len(said[0]) == 1
    assert said == said[:1] * 4


def test_steps_after_a_truncation_are_allowed_as_in_gymnasium(pendulum):
    for env in (gymnasium.make("Pendulum-v1", max_episode_steps=3), pendulum):
        env.reset(seed=0)
        ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(5)]
        assert ends == [*[(False, False)] * 2, *[(False, True)] * 3]


@pytest.mark.slow
def test_stable_baselines_trains_on_it():
    library = pytest.importorskip("stable_baselines3")
    env = to_gymnasium(rlcli.make("CartPole-v1"), time_limit=500)
    model = library.PPO("MlpPolicy", env, n_steps=64, seed=0).learn(256)
    action, _ = model.predict(env.reset(seed=1)[0])
    assert action in env.action_space
