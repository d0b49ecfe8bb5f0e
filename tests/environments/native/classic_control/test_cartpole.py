"""CartPole, compared with Gymnasium."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.native.classic_control.cartpole import CartPoleState, cartpole

X_LIMIT, THETA_LIMIT = 2.4, 12 * 2 * np.pi / 360


@functools.cache
def visited_states() -> np.ndarray:
    """States `[N, 4]` of a random policy in Gymnasium."""
    env = gymnasium.make("CartPole-v1").unwrapped
    env.action_space.seed(1)
    states = []
    for episode in range(60):
        env.reset(seed=episode)
        for _ in range(200):
            states.append(env.state)
            if env.step(env.action_space.sample())[2]:
                break
    return np.array(states, np.float32)


def mutated_states() -> np.ndarray:
    """Visited states, scaled and with noise: fast, fallen, far outside."""
    rng = np.random.default_rng(2)
    states = np.repeat(visited_states(), 2, axis=0)
    noise = rng.normal(size=states.shape) * [1.5, 2.0, 0.3, 3.0]
    return (states * rng.uniform(-5, 5, states.shape) + noise).astype(np.float32)


def boundary_states() -> np.ndarray:
    """At rest, and within a few float32 of the limits of position and angle."""
    states = []
    for axis, limit in ((0, X_LIMIT), (2, THETA_LIMIT)):
        value = np.float32(limit)
        for _ in range(4):
            value = np.nextafter(value, np.float32(0))
        for _ in range(9):
            for sign in (-1, 1):
                state = np.zeros(4, np.float32)
                state[axis] = sign * value
                states.append(state)
            value = np.nextafter(value, np.float32(9))
    return np.array(states)


def reference(states, actions, sutton_barto_reward=False, **physics):
    """One step of Gymnasium from each state: observations, rewards, terminations."""
    env = gymnasium.make(
        "CartPole-v1", sutton_barto_reward=sutton_barto_reward
    ).unwrapped
    env.reset(seed=0)
    for name, value in physics.items():
        setattr(env, name, value)
    env.total_mass = env.masspole + env.masscart
    env.polemass_length = env.masspole * env.length
    answers = []
    for state, action in zip(states, actions, strict=True):
        env.state = state.astype(np.float64)
        env.steps_beyond_terminated = None
        answers.append(env.step(int(action))[:3])
    return tuple(np.array(each) for each in zip(*answers, strict=True))


@functools.cache
def step_of(**physics):
    core = cartpole(**physics)
    return jax.jit(jax.vmap(lambda state, action: core.step(state, action, ())))


def step_batch(states, actions, **physics):
    step = step_of(**physics)
    after, timestep = jax.device_get(step(CartPoleState(states), actions))
    assert np.array_equal(after.physics, timestep.next_obs)
    return timestep


def compare(states, **physics):
    names = {"force_magnitude": "force_mag"}
    renamed = {names.get(name, name): value for name, value in physics.items()}
    for action in (0, 1):
        actions = np.full(len(states), action)
        obs, reward, terminated = reference(states, actions, **renamed)
        timestep = step_batch(states, actions, **physics)
        np.testing.assert_allclose(timestep.next_obs, obs, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(timestep.reward, reward)
        np.testing.assert_array_equal(timestep.last, terminated)
        np.testing.assert_array_equal(timestep.discount, 1.0 - terminated)
    return timestep


def test_a_step_matches_gymnasium_in_states_of_a_random_policy():
    states = visited_states()
    assert len(states) > 1000
    assert 30 < np.sum(compare(states).last) < len(states)


def test_a_step_matches_gymnasium_in_unvisited_states():
    states = mutated_states()
    assert len(states) > 2000
    assert 100 < np.sum(compare(states).last) < len(states)


def test_the_limits_match_gymnasium_bit_for_bit():
    states = boundary_states()
    last = compare(states).last
    assert 0 < np.sum(last) < len(states)


@pytest.mark.parametrize(
    "physics",
    [
        {"gravity": 3.7},
        {"masscart": 2.0},
        {"masspole": 0.4},
        {"length": 1.1},
        {"force_magnitude": 4.0},
        {"tau": 0.05},
        {"masscart": 0.5, "masspole": 0.3, "length": 0.2, "gravity": 12.0},
    ],
)
def test_physics_parameters_match_gymnasium(physics):
    states = mutated_states()[::10]
    compare(states, **physics)
    actions = np.ones(len(states), int)
    plain, changed = step_batch(states, actions), step_batch(states, actions, **physics)
    assert not np.allclose(plain.next_obs, changed.next_obs)


def test_thresholds_set_the_termination_and_the_space():
    core = cartpole(theta_threshold=24.0, x_threshold=1.0)
    state = CartPoleState(jnp.array([0.0, 0.0, 0.3, 0.0]))
    assert not core.step(state, 0, ())[1].last
    assert cartpole().step(state, 0, ())[1].last
    far = CartPoleState(jnp.array([1.1, 0.0, 0.0, 0.0]))
    assert core.step(far, 0, ())[1].last
    assert not cartpole().step(far, 0, ())[1].last
    np.testing.assert_allclose(core.observation.high[[0, 2]], [2.0, np.radians(48)])


def test_only_the_terminal_step_has_the_failure_reward():
    states = mutated_states()
    actions = np.zeros(len(states), int)
    timestep = step_batch(states, actions)
    unpaid = step_batch(states, actions, failure_reward=0.0)
    np.testing.assert_array_equal(timestep.reward, 1.0)
    np.testing.assert_array_equal(unpaid.reward, unpaid.discount)
    assert unpaid.reward.dtype == jnp.float32


def test_sutton_and_barto_rewards_match_gymnasium():
    states = mutated_states()[::4]
    actions = np.ones(len(states), int)
    timestep = step_batch(states, actions, step_reward=0.0, failure_reward=-1.0)
    _, reward, _ = reference(states, actions, sutton_barto_reward=True)
    np.testing.assert_array_equal(timestep.reward, reward)
    assert set(reward) == {0.0, -1.0}


def test_spaces_and_time_limit_match_gymnasium():
    env = gymnasium.make("CartPole-v1")
    core = cartpole()
    assert core.observation == env.observation_space
    assert core.observation.dtype == env.observation_space.dtype
    assert core.action == env.action_space
    found = registry.find("environment", "CartPole-v1")
    assert found.facts["time_limit"] == env.spec.max_episode_steps


def test_initial_states_are_uniform_within_a_twentieth(is_uniform):
    keys = jax.random.split(jax.random.key(3), 20_000)
    state, obs = jax.device_get(jax.jit(jax.vmap(cartpole().reset))(keys))
    np.testing.assert_array_equal(state.physics, obs)
    assert obs.dtype == jnp.float32
    assert is_uniform(obs, -0.05, 0.05)
    np.testing.assert_allclose(np.corrcoef(obs.T), np.eye(4), atol=0.03)


def test_parameters_can_be_traced():
    state = CartPoleState(jnp.array([0.1, 0.2, 0.05, -0.3]))
    lengths = np.float32([0.3, 0.5, 0.9])

    def obs_with(length):
        return cartpole(length=length).step(state, 1, ())[1].obs

    traced = np.asarray(jax.jit(jax.vmap(obs_with))(lengths))
    for length, obs in zip((0.3, 0.5, 0.9), traced, strict=True):
        np.testing.assert_allclose(obs, obs_with(length), rtol=1e-6)


def test_a_compiled_step_equals_an_eager_step():
    core = cartpole()
    state = CartPoleState(jnp.array([0.1, 0.2, 0.05, -0.3]))
    compiled = jax.jit(core.step)(state, 1, ())
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
        compiled,
        core.step(state, 1, ()),
    )


def test_the_pole_is_drawn_with_its_angle_and_length():
    def wood(x=0.0, theta=0.0, **physics):
        state = CartPoleState(jnp.array([x, 0.0, theta, 0.0]))
        frame = cartpole(**physics).render(state).astype(int)
        rows, columns = np.nonzero(np.abs(frame - [208, 140, 74]).sum(-1) < 30)
        return np.ptp(rows), columns.mean()

    assert wood(theta=-0.2)[1] < wood()[1] < wood(theta=0.2)[1]
    assert wood(x=-1.0)[1] < 300 < wood(x=1.0)[1]
    assert wood(length=1.0)[0] > 1.8 * wood(length=0.5)[0]
