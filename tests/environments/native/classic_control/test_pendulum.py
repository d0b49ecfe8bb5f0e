"""Pendulum, compared with Gymnasium."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.native.classic_control.pendulum import PendulumState, pendulum

PHYSICS = {"g": 10.0, "mass": 1.0, "length": 1.0, "dt": 0.05}
THEIR_NAMES = {"g": "g", "mass": "m", "length": "l", "dt": "dt"}


def states_and_actions(n=3000):
    """States at all angles, beyond the maximum speed; torques far outside the box."""
    rng = np.random.default_rng(1)
    states = rng.uniform([-np.pi, -11], [np.pi, 11], (n, 2)).astype(np.float32)
    states[:5, 0] = [0, -np.pi / 2, np.pi / 2, 3.1415925, -3.1415925]
    return states, rng.uniform(-4, 4, (n, 1)).astype(np.float32)


@functools.cache
def step_of(**options):
    """Steps a batch of states; the physics parameters are traced."""

    def step(physics, states, actions):
        core = pendulum(**physics, **options)
        state = PendulumState(*states.T)
        return jax.vmap(core.step)(state, actions, ())

    return jax.jit(step)


def compare(steps_of, physics, **options):
    states, actions = states_and_actions()
    attributes = {THEIR_NAMES.get(name, name): value for name, value in physics.items()}
    # Gymnasium's angle is not wrapped: it can be several turns away.
    rounds = np.array([2 * np.pi, 0]) * (np.arange(len(states)) % 7 - 3)[:, None]
    expected = steps_of(
        "Pendulum-v1", states + rounds, actions, **attributes, **options
    )
    after, timestep = step_of(**options)(physics, states, actions)
    np.testing.assert_allclose(timestep.next_obs, expected[0], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(timestep.reward, expected[1], rtol=1e-5, atol=1e-6)
    assert not np.any(timestep.last) and not np.any(expected[2])
    np.testing.assert_array_equal(timestep.discount, 1.0)
    assert np.all(np.abs(after.angle) <= np.pi + 1e-6)
    return timestep


def test_a_step_matches_gymnasium_for_all_states_and_torques(steps_of):
    timestep = compare(steps_of, PHYSICS)
    assert 100 < np.sum(np.abs(timestep.next_obs[:, 2]) == 8) < 2000


def test_an_angle_beyond_pi_has_the_reward_of_gymnasium(steps_of):
    states, actions = states_and_actions()
    states[:, 0] += 2 * np.pi * (np.arange(len(states)) % 7 - 3)
    expected = steps_of("Pendulum-v1", states.astype(np.float64), actions)
    _, timestep = step_of()(PHYSICS, states, actions)
    # Near ±π, rounding can change the angle by a full turn at the same cost.
    np.testing.assert_allclose(timestep.reward, expected[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(timestep.next_obs, expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changed",
    [{"g": 3.7}, {"mass": 2.0}, {"length": 0.6}, {"dt": 0.1}, {"length": 1.5, "g": 9}],
)
def test_physics_parameters_match_gymnasium(steps_of, changed):
    physics = PHYSICS | {name: float(value) for name, value in changed.items()}
    assert not np.allclose(
        compare(steps_of, physics).next_obs, compare(steps_of, PHYSICS).next_obs
    )


def test_speed_and_torque_limits_match_gymnasium_and_set_the_spaces(steps_of):
    compare(steps_of, PHYSICS, max_speed=3.0, max_torque=1.0)
    core = pendulum(max_speed=3.0, max_torque=1.0)
    np.testing.assert_array_equal(core.observation.high, [1, 1, 3])
    np.testing.assert_array_equal(core.action.high, [1])


def test_a_torque_outside_the_box_is_clipped_for_dynamics_and_reward():
    states = np.array([[1.0, 0.5]] * 2, np.float32)
    step = step_of()
    outside = step(PHYSICS, states, np.array([[2.5], [-100.0]], np.float32))
    inside = step(PHYSICS, states, np.array([[2.0], [-2.0]], np.float32))
    jax.tree.map(np.testing.assert_array_equal, outside, inside)


def test_spaces_and_time_limit_match_gymnasium():
    env = gymnasium.make("Pendulum-v1")
    core = pendulum()
    assert core.observation == env.observation_space
    assert core.action == env.action_space
    found = registry.find("environment", "Pendulum-v1")
    assert found.facts["time_limit"] == env.spec.max_episode_steps


def test_cosine_and_sine_of_any_angle_are_in_the_space():
    angles = jnp.linspace(-jnp.pi, jnp.pi, 200_001)
    state = PendulumState(angles, jnp.zeros_like(angles))
    still = jnp.zeros((len(angles), 1))
    step = jax.jit(jax.vmap(pendulum(g=0.0).step))
    obs = np.asarray(step(state, still, ())[1].obs)
    assert np.all(np.abs(obs) <= pendulum().observation.high)
    assert np.max(obs[:, 0]) == np.max(obs[:, 1]) == 1


def test_initial_angles_are_arbitrary_and_initial_speeds_low(is_uniform):
    keys = jax.random.split(jax.random.key(3), 20_000)
    state, obs = jax.jit(jax.vmap(pendulum().reset))(keys)
    assert is_uniform(state.angle[:, None], -np.pi, np.pi)
    assert is_uniform(state.speed[:, None], -1, 1)
    assert abs(np.corrcoef(state.angle, state.speed)[0, 1]) < 0.03
    np.testing.assert_allclose(obs[:, 0], np.cos(state.angle), atol=1e-6)
    np.testing.assert_allclose(obs[:, 1], np.sin(state.angle), atol=1e-6)
    np.testing.assert_array_equal(obs[:, 2], state.speed)


def test_the_rod_is_drawn_with_its_angle_and_length():
    def rod(angle, **physics):
        frame = pendulum(**physics).render(PendulumState(angle, 0.0)).astype(int)
        rows, columns = np.nonzero(np.abs(frame - [194, 65, 58]).sum(-1) < 30)
        return rows.mean() - 200, columns.mean() - 200, len(rows)

    assert rod(0.0)[0] < -60
    assert rod(np.pi)[0] > 60
    assert rod(0.8)[1] < -40 < 40 < rod(-0.8)[1]
    assert rod(0.8, length=0.5)[2] < 0.7 * rod(0.8)[2]
