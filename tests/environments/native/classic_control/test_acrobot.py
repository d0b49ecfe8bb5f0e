"""Acrobot, compared with Gymnasium."""

import functools
import inspect

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import registry
from rlcli.environments.native.classic_control.acrobot import AcrobotState, acrobot

NAMES = {
    "dt": ["dt"],
    "link_length": ["LINK_LENGTH_1", "LINK_LENGTH_2"],
    "link_mass_1": ["LINK_MASS_1"],
    "link_mass_2": ["LINK_MASS_2"],
    "link_center_1": ["LINK_COM_POS_1"],
    "link_center_2": ["LINK_COM_POS_2"],
    "link_inertia": ["LINK_MOI"],
    "max_speed_1": ["MAX_VEL_1"],
    "max_speed_2": ["MAX_VEL_2"],
}
DEFAULTS = {
    name: inspect.signature(acrobot).parameters[name].default
    for name in (*NAMES, "torque", "gravity")
    if not name.startswith("max")
}
PHYSICS = {name: value for name, value in DEFAULTS.items() if name in NAMES}
HIGH = np.array([1, 1, 1, 1, 4 * np.pi, 9 * np.pi], np.float32)


@functools.cache
def step_of(**options):
    """Steps a batch of states; the physics parameters are traced."""

    def step(physics, states, actions):
        core = acrobot(**physics, **options)
        return jax.vmap(core.step, (0, 0, None))(AcrobotState(states), actions, ())

    compiled = jax.jit(step)
    return lambda physics, *inputs: compiled(DEFAULTS | physics, *inputs)


NUMBER = 300  # states in each call of a program


def random_states(n=NUMBER):
    """States across the space, including fast ones."""
    rng = np.random.default_rng(1)
    high = np.array([np.pi, np.pi, 4 * np.pi, 9 * np.pi])
    states = rng.uniform(-high, high, (n, 4)) * rng.choice([0.2, 1], (n, 1))
    return states.astype(np.float32)


def compare(steps_of, states, physics=PHYSICS, **options):
    actions = np.arange(len(states)) % 3
    attributes = {
        attribute: value
        for name, value in (physics | options).items()
        for attribute in NAMES.get(name, [name])
    }
    expected = steps_of("Acrobot-v1", states.astype(np.float64), actions, **attributes)
    step = step_of(**options)
    after, timestep = jax.device_get(step(physics, states, actions))
    # Relative to the range of each value: a speed near 0 is a difference of large ones.
    error = np.abs(timestep.next_obs - expected[0]) / np.maximum(
        np.abs(expected[0]), HIGH
    )
    # At full speed a link turns nearly once per step, which amplifies rounding by 100.
    fast = np.max(np.abs(states[:, 2:]) / HIGH[4:], axis=1) > 0.25
    assert np.max(error[~fast]) < 1e-5
    assert np.max(error) < 1e-4
    np.testing.assert_array_equal(timestep.reward, expected[1])
    np.testing.assert_array_equal(timestep.last, expected[2])
    np.testing.assert_array_equal(timestep.discount, 1.0 - expected[2])
    assert np.all(np.abs(after.physics[:, :2]) <= np.pi + 1e-6)
    return timestep


def test_a_step_matches_gymnasium_in_states_of_a_random_policy(
    steps_of, visited_states
):
    states = visited_states("Acrobot-v1", 15)
    chosen = np.random.default_rng(0).choice(len(states), NUMBER, replace=False)
    compare(steps_of, states[chosen])


@pytest.mark.parametrize("options", [{}, {"book_or_nips": "nips"}])
def test_a_step_matches_gymnasium_in_unvisited_states(steps_of, options):
    timestep = compare(steps_of, random_states(), **options)
    assert 20 < np.sum(timestep.last) < 200


@pytest.mark.slow
def test_the_book_has_a_term_that_the_paper_lacks():
    states, actions = random_states(50), np.ones(50, int)
    book, paper = (
        step_of(book_or_nips=each)(PHYSICS, states, actions)[1].obs
        for each in ("book", "nips")
    )
    assert np.mean(np.abs(book - paper)) > 0.1


@pytest.mark.parametrize(
    "changed",
    [
        {"dt": 0.1},
        {"link_length": 0.7},
        {"link_mass_1": 2.0},
        {"link_mass_2": 0.5},
        {"link_center_1": 0.3},
        {"link_center_2": 0.8},
        {"link_inertia": 1.7},
    ],
)
def test_physics_parameters_match_gymnasium(steps_of, changed):
    states = random_states()
    timestep = compare(steps_of, states, PHYSICS | changed)
    _, plain = step_of()(PHYSICS, states, np.arange(NUMBER) % 3)
    assert np.mean(np.abs(timestep.obs - np.asarray(plain.obs))) > 0.01


def test_speed_limits_match_gymnasium_and_set_the_space(steps_of):
    limits = {"max_speed_1": 2.0, "max_speed_2": 3.0}
    obs = compare(steps_of, random_states(), **limits).obs
    assert np.max(np.abs(obs[:, 4:]), axis=0).tolist() == [2.0, 3.0]
    core = acrobot(**limits)
    np.testing.assert_array_equal(core.observation.high, [1, 1, 1, 1, 2, 3])


def test_half_the_gravity_matches_gymnasium_in_slow_motion(steps_of):
    # Gymnasium's gravity is fixed. At half the gravity and half the torque, everything
    # takes √2 times as long.
    states, actions, slower = random_states(), np.arange(NUMBER) % 3, np.sqrt(2)
    physics = PHYSICS | {"dt": 0.2 * slower, "torque": 0.5, "gravity": 4.9}
    time = np.array([1, 1, slower, slower], np.float32)
    _, timestep = step_of()(physics, states / time, actions)
    limits = {"MAX_VEL_1": 4 * np.pi * slower, "MAX_VEL_2": 9 * np.pi * slower}
    obs, _, over = steps_of("Acrobot-v1", states.astype(float), actions, **limits)
    found = np.asarray(timestep.next_obs) * [1, 1, 1, 1, slower, slower]
    np.testing.assert_allclose(found, obs, atol=3e-3)
    np.testing.assert_array_equal(timestep.last, over)
    plain = step_of()(physics | {"gravity": 9.8}, states / time, actions)[1]
    assert np.mean(np.abs(np.asarray(plain.obs) - np.asarray(timestep.obs))) > 0.05


def test_the_torque_scales_the_actions(steps_of):
    states, actions = random_states(), np.arange(NUMBER) % 3
    attributes = {"AVAIL_TORQUE": [-3.0, 0.0, 3.0]}
    expected = steps_of("Acrobot-v1", states.astype(float), actions, **attributes)[0]
    obs = step_of()(PHYSICS | {"torque": 3.0}, states, actions)[1].obs
    np.testing.assert_allclose(obs, expected, atol=3e-4)


def test_torque_noise_is_uniform_and_additive(is_uniform):
    noisy, state = acrobot(torque_noise=0.5), AcrobotState(jnp.array([0.1, 0.2, 0, 0]))
    draw = jax.jit(jax.vmap(noisy.draw))
    noise = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))
    assert is_uniform(noise[:, None], -0.5, 0.5)
    pushed = noisy.step(state, 1, 0.25)[1].obs
    np.testing.assert_allclose(pushed, acrobot(torque=0.25).step(state, 2, ())[1].obs)
    assert acrobot().draw(jax.random.key(0)) == ()


def test_the_scale_of_the_noise_can_be_traced():
    keys = jax.random.split(jax.random.key(1), 100)

    def noise(torque_noise):
        return jax.vmap(acrobot(torque_noise=torque_noise).draw)(keys)

    none, some, more = jax.device_get(
        jax.jit(jax.vmap(noise))(np.float32([0.0, 0.5, 1.0]))
    )
    assert not none.any()
    assert np.max(np.abs(some)) <= 0.5 < np.max(np.abs(more)) <= 1
    np.testing.assert_allclose(some, more / 2, rtol=1e-5)


def test_spaces_and_time_limit_match_gymnasium():
    env = gymnasium.make("Acrobot-v1")
    core = acrobot()
    assert core.observation == env.observation_space
    assert core.action == env.action_space
    found = registry.find("environment", "Acrobot-v1")
    assert found.facts["time_limit"] == env.spec.max_episode_steps


def test_initial_states_hang_almost_at_rest(is_uniform):
    keys = jax.random.split(jax.random.key(3), 20_000)
    state, obs = jax.jit(jax.vmap(acrobot().reset))(keys)
    physics, obs = np.asarray(state.physics), np.asarray(obs)
    assert is_uniform(physics, -0.1, 0.1)
    np.testing.assert_allclose(np.corrcoef(physics.T), np.eye(4), atol=0.03)
    angles = physics[:, :2]
    expected = np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(-1, 4)
    np.testing.assert_allclose(obs[:, :4], expected, atol=1e-6)
    np.testing.assert_array_equal(obs[:, 4:], physics[:, 2:])


def test_the_tip_is_drawn_above_the_bar_where_the_episode_ends():
    def tip_row(theta_1, theta_2):
        state = AcrobotState(jnp.array([theta_1, theta_2, 0.0, 0.0]))
        frame = acrobot().render(state).astype(int)
        return np.nonzero(np.abs(frame - [194, 65, 58]).sum(-1) < 30)[0].mean()

    bar = 112
    for theta_1, theta_2 in [(0.0, 0.0), (2.0, 0.3), (2.9, -0.5), (1.8, 1.0)]:
        high = -np.cos(theta_1) - np.cos(theta_1 + theta_2) > 1
        assert (tip_row(theta_1, theta_2) < bar) == high
