"""Randomization: every episode draws numbers of its environment."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlcli
from rlcli.environments.native.classic_control.cartpole import cartpole
from rlcli.environments.native.games.pong import pong
from rlcli.environments.randomization import randomize
from rlcli.environments.vector import vector
from rlcli.schedules import RandomNumber

NUMBERS = {
    "masspole": RandomNumber("uniform", (0.05, 0.2)),
    "length": RandomNumber("log_uniform", (0.2, 2.0)),
    "gravity": RandomNumber("choice", (8.0, 9.8, 12.0)),
}
core = randomize(lambda values: cartpole(**values), NUMBERS)


@functools.cache
def drawn(count=20_000):
    """The numbers of so many first episodes."""
    keys = jax.random.split(jax.random.key(7), count)
    state, _ = jax.jit(jax.vmap(core.reset))(keys)
    numbers = jax.vmap(core.parameters)(state)
    return {name: np.asarray(value, np.float64) for name, value in numbers.items()}


def test_a_uniform_number_is_uniform(is_uniform):
    assert is_uniform(drawn()["masspole"][:, None], 0.05, 0.2)


def test_the_logarithm_of_a_log_uniform_number_is_uniform(is_uniform):
    assert is_uniform(np.log(drawn()["length"])[:, None], np.log(0.2), np.log(2))


def test_the_values_of_a_choice_are_equally_likely(as_likely):
    values, counts = np.unique(drawn()["gravity"], return_counts=True)
    np.testing.assert_allclose(values, [8, 9.8, 12], rtol=1e-6)
    assert as_likely(counts, np.full(3, 1 / 3))


def test_numbers_are_within_their_ranges_and_independent():
    numbers = drawn()
    for name, low, high in (("masspole", 0.05, 0.2), ("length", 0.2, 2.0)):
        assert np.float32(low) <= numbers[name].min()
        assert numbers[name].max() <= np.float32(high)
    correlation = np.corrcoef([np.log(v) for v in numbers.values()])
    assert np.abs(correlation - np.eye(3)).max() < 4 / np.sqrt(20_000)


@pytest.mark.parametrize(
    ("distribution", "quantiles"),
    [
        (RandomNumber("uniform", (-1.0, 3.0)), [-1, 0, 1, 2, 3]),
        (RandomNumber("log_uniform", (0.01, 100.0)), [0.01, 0.1, 1, 10, 100]),
        (RandomNumber("choice", (5.0, 1.0)), [5, 5, 1, 1, 1]),
    ],
)
def test_quantiles_are_those_of_the_distribution(distribution, quantiles):
    share = np.linspace(0, 1, 5)
    for xp in (np, jnp):
        found = distribution.quantile(xp.asarray(share), xp)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, quantiles, rtol=1e-5)


@pytest.mark.slow
def test_an_episode_begins_as_without_draws():
    key = jax.random.key(3)
    _, obs = core.reset(key)
    _, expected = cartpole().reset(key)
    np.testing.assert_array_equal(obs, expected)


@functools.cache
def play(length=60, num_envs=16, limit=9):
    """States and timesteps `[T, B]` of a vector that plays at random."""
    env = vector(lambda values: core, num_envs, time_limit=limit)

    def one(state, key):
        choice_key, noise_key = jax.random.split(key)
        action = jax.random.randint(choice_key, (num_envs,), 0, 2)
        after, timestep = env.step(state, action, env.draw(noise_key))
        return after, (env.parameters(state), state.core.core, action, timestep)

    first, _ = env.reset(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), length)
    return jax.device_get(jax.jit(lambda: jax.lax.scan(one, first, keys)[1])())


@pytest.mark.slow
def test_numbers_stay_for_an_episode_and_are_drawn_anew_for_the_next():
    parameters, _, _, timesteps = play()
    last = timesteps.last[:-1]
    assert last.sum() > 50
    for name in ("masspole", "length"):
        changes = parameters[name][1:] != parameters[name][:-1]
        np.testing.assert_array_equal(changes, last)
        values = np.unique(parameters[name])
        assert len(values) == last.sum() + parameters[name].shape[1]


def test_each_step_follows_gymnasium_with_the_numbers_of_its_episode():
    parameters, state, action, timesteps = play()
    env = gymnasium.make("CartPole-v1").unwrapped
    for row in range(0, len(action), 4):
        for index in range(0, action.shape[1], 3):
            own = {name: float(value[row, index]) for name, value in parameters.items()}
            for name, value in own.items():
                setattr(env, name, value)
            env.total_mass = env.masscart + env.masspole
            env.polemass_length = env.masspole * env.length
            env.state = state.physics[row, index].astype(np.float64)
            env.steps_beyond_terminated = None
            obs, reward, terminated, _, _ = env.step(int(action[row, index]))
            np.testing.assert_allclose(timesteps.next_obs[row, index], obs, atol=2e-6)
            assert timesteps.reward[row, index] == reward
            assert timesteps.discount[row, index] == 1 - terminated


def test_each_step_is_that_of_the_core_with_these_numbers():
    state, _ = core.reset(jax.random.key(5))
    own = cartpole(**{k: float(v) for k, v in core.parameters(state).items()})
    _, timestep = core.step(state, 1, ())
    _, expected = own.step(state.core, 1, ())
    np.testing.assert_allclose(timestep.next_obs, expected.next_obs, rtol=1e-6)


@pytest.mark.slow
def test_noise_that_depends_on_a_number_is_drawn_with_that_of_the_episode():
    skills = {"opponent_skill": RandomNumber("choice", (0.0, 1.0))}
    game = randomize(lambda values: pong(**values), skills)
    step, action = jax.jit(game.step), jnp.int32(1)
    seen = set()
    for seed in range(6):
        reset_key, noise_key = jax.random.split(jax.random.key(seed))
        state, _ = game.reset(reset_key)
        skill = float(game.parameters(state)["opponent_skill"])
        seen.add(skill)
        fixed = pong(opponent_skill=skill)
        after, _ = step(state, action, game.draw(noise_key))
        expected, _ = fixed.step(state.core, action, fixed.draw(noise_key))
        jax.tree.map(np.testing.assert_array_equal, after.core, expected)
    assert seen == {0.0, 1.0}


def test_noise_that_no_number_changes_is_drawn_as_without_numbers():
    key = jax.random.key(0)
    assert core.draw(key) == ()


def test_images_show_the_numbers_of_the_episode():
    state, _ = jax.device_get(core.reset(jax.random.key(5)))
    own = cartpole(length=float(core.parameters(state)["length"]))
    np.testing.assert_array_equal(core.render(state), own.render(state.core))
    assert np.any(core.render(state) != cartpole().render(state.core))


def test_without_distributions_the_core_is_itself():
    plain = cartpole()
    assert randomize(lambda values: plain, {}) is plain


@pytest.mark.slow
def test_environments_of_python_draw_too():
    each = {"length": {"uniform": [0.5, 1.5]}, "masspole": [0.1, 0.2]}
    env = rlcli.make("CartPole-v1", num_envs=4, each=each, statistics=True)
    state, _ = env.reset(jax.random.key(0))
    numbers = env.parameters(state)
    np.testing.assert_allclose(numbers["masspole"], [0.1, 0.2, 0.1, 0.2])
    assert len(np.unique(numbers["length"])) == 4
    single = rlcli.make("CartPole-v1", each={"length": {"choice": [0.7]}})
    state, _ = single.reset(jax.random.key(0))
    np.testing.assert_allclose(single.parameters(state)["length"], 0.7)


RECIPE = {
    "environment": {
        "name": "CartPole-v1",
        "num_envs": 2,
        "each": {"masspole": {"uniform": [0.05, 0.2]}, "length": {"choice": [0.4, 2]}},
    },
    "updater": "ppo",
    "network": {"name": "mlp", "layers": [4]},
    "train": {
        "steps": 4_000,
        "unroll": 32,
        "evaluate": {"every": 2_000, "episodes": 2},
    },
}


@pytest.mark.slow
def test_a_run_that_is_stopped_within_episodes_resumes_with_their_numbers():
    result = rlcli.verify_resume(RECIPE, seeds=2, quiet=True)
    assert result["inexact"] == [] and result["stops"]
