"""Reacher, compared with explicit trigonometry."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.control.reacher import ReacherState, reacher
from rlcli.spaces import contains

BATCH = 300


def states_and_actions(joints):
    rng = np.random.default_rng(joints)
    state = ReacherState(
        rng.uniform(-np.pi, np.pi, (BATCH, joints)).astype(np.float32),
        rng.normal(0, 3, (BATCH, joints)).astype(np.float32),
        rng.uniform(-joints, joints, (BATCH, 2)).astype(np.float32),
    )
    return state, rng.uniform(-2, 2, (BATCH, joints)).astype(np.float32)


def reference_step(angles, speeds, target, action, torque_scale, dt):
    """Observation and reward after a step, joint by joint."""
    x, y, cosines, sines, after = 0.0, 0.0, [], [], []
    for angle, speed, push in zip(angles, speeds, action, strict=True):
        speed = float(speed) + torque_scale * min(max(float(push), -1.0), 1.0) * dt
        angle = float(angle) + speed * dt
        x, y = x + math.cos(angle), y + math.sin(angle)
        cosines.append(math.cos(angle))
        sines.append(math.sin(angle))
        after.append(speed)
    distance = math.hypot(x - float(target[0]), y - float(target[1]))
    return [*cosines, *sines, *after, *target.tolist()], math.exp(-(distance**2))


@functools.cache
def step_of(joints):
    """Steps a batch of states; the physics parameters are traced."""

    def step(torque_scale, dt, state, action):
        core = reacher(joints=joints, torque_scale=torque_scale, dt=dt)
        after, timestep = jax.vmap(core.step)(state, action, ())
        inside = jax.vmap(lambda obs: contains(core.observation, obs))(timestep.obs)
        return after, timestep, inside

    return jax.jit(step)


@pytest.mark.parametrize("joints", [1, 2, 3, 7])
@pytest.mark.parametrize("physics", [(1.0, 0.05), (3.0, 0.2)])
def test_a_step_matches_trigonometry_for_any_number_of_joints(joints, physics):
    """In gymnax an arm with another number of joints than two is an error."""
    torque_scale, dt = physics
    state, actions = states_and_actions(joints)
    taken = step_of(joints)(torque_scale, dt, state, actions)
    after, timestep, inside = jax.device_get(taken)
    found = [
        reference_step(*each, *physics) for each in zip(*state, actions, strict=True)
    ]
    obs, reward = (np.array(each) for each in zip(*found, strict=True))
    np.testing.assert_allclose(timestep.obs, obs, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(timestep.reward, reward, rtol=3e-5, atol=1e-6)
    assert not np.any(timestep.last)
    assert np.all(np.abs(after.angles) <= np.pi + 1e-6)
    core = reacher(joints=joints)
    assert core.observation.shape == (3 * joints + 2,)
    assert core.action.shape == (joints,)
    assert inside.all()


@pytest.mark.parametrize("joints", [1, 3])
def test_initial_states_are_random(is_uniform, joints):
    keys = jax.random.split(jax.random.key(0), 10_000)
    state, obs = jax.jit(jax.vmap(reacher(joints=joints).reset))(keys)
    assert is_uniform(state.angles, -np.pi, np.pi)
    assert is_uniform(state.speeds, -1, 1)
    assert is_uniform(state.target, -joints, joints)
    every = np.concatenate([*state], axis=1)
    mixed = np.corrcoef(every, rowvar=False) - np.eye(every.shape[1])
    assert np.max(np.abs(mixed)) < 0.05
    np.testing.assert_allclose(obs[:, :joints], np.cos(state.angles), atol=1e-6)
    np.testing.assert_array_equal(obs[:, 2 * joints : 3 * joints], state.speeds)


def test_the_tip_and_the_target_are_drawn_at_their_positions():
    core = reacher(joints=3)
    angles, target = jnp.array([0.3, 1.4, 2.0]), jnp.array([-1.0, -2.0])
    frame = core.render(ReacherState(angles, jnp.zeros(3), target)).astype(int)

    def middle(colour):
        rows, columns = np.nonzero(np.abs(frame - colour).sum(-1) < 30)
        return (columns.mean() - 220) / (200 / 3), (220 - rows.mean()) / (200 / 3)

    tip = np.cos(angles).sum(), np.sin(angles).sum()
    assert middle([194, 65, 58]) == pytest.approx(tip, abs=0.05)
    assert middle([77, 143, 92]) == pytest.approx((-1.0, -2.0), abs=0.05)
