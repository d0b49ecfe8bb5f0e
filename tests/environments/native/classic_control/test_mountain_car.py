"""MountainCar with discrete and with continuous actions, compared with Gymnasium."""

import functools
import inspect
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlcli
from rlcli import registry
from rlcli.environments.native.classic_control.mountain_car import (
    MountainCarState,
    mountain_car,
    mountain_car_continuous,
)
from rlcli.errors import RlcliError

FACTORIES = {
    "MountainCar-v0": mountain_car,
    "MountainCarContinuous-v0": mountain_car_continuous,
}
BOTH = pytest.mark.parametrize("name", FACTORIES)
# The parameters with a Gymnasium attribute: the continuous car's gravity has none.
CHANGES = [
    ("MountainCar-v0", {"force": 0.003}),
    ("MountainCar-v0", {"gravity": 0.001}),
    ("MountainCar-v0", {"goal_position": 0.1}),
    ("MountainCar-v0", {"goal_velocity": 0.02}),
    ("MountainCar-v0", {"min_position": -0.9}),
    ("MountainCar-v0", {"max_position": 0.3, "goal_position": 0.25}),
    ("MountainCar-v0", {"max_speed": 0.03}),
    ("MountainCarContinuous-v0", {"power": 0.004}),
    ("MountainCarContinuous-v0", {"goal_position": 0.1}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.02}),
    ("MountainCarContinuous-v0", {"min_position": -0.9}),
    ("MountainCarContinuous-v0", {"max_position": 0.3, "goal_position": 0.25}),
    ("MountainCarContinuous-v0", {"max_speed": 0.03}),
]


def physics_of(name):
    """The parameters that can be traced, with their defaults."""
    parameters = inspect.signature(FACTORIES[name]).parameters
    structural = ("min_position", "max_position", "max_speed")
    return {k: p.default for k, p in parameters.items() if k not in structural}


@functools.cache
def step_of(name, **options):
    """Steps a batch of states; the physics parameters are traced."""

    def step(physics, states, actions):
        core = FACTORIES[name](**physics, **options)
        return jax.vmap(core.step)(MountainCarState(states), actions, ())

    return jax.jit(step)


def everywhere(name, n=1200):
    """States across the valley, slightly outside, and at its ends; all actions."""
    rng = np.random.default_rng(1)
    states = rng.uniform([-1.3, -0.09], [0.7, 0.09], (n, 2)).astype(np.float32)
    states[: n // 10, 0] = -1.2
    states[n // 10 : n // 5, 0] = 0.6
    if name == "MountainCar-v0":
        return states, np.arange(n) % 3
    return states, rng.uniform(-3, 3, (n, 1)).astype(np.float32)


def compare(steps_of, name, states, actions, **changed):
    # Gymnasium uses float64 with discrete actions, and float32 with continuous ones.
    reference_states = states.astype(np.float64) if name == "MountainCar-v0" else states
    obs, reward, terminated = steps_of(name, reference_states, actions, **changed)
    traced = physics_of(name)
    physics = {key: changed.pop(key, value) for key, value in traced.items()}
    step = step_of(name, **changed)
    after, timestep = jax.device_get(step(physics, states, actions))
    np.testing.assert_allclose(timestep.next_obs[:, 0], obs[:, 0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(timestep.next_obs[:, 1], obs[:, 1], rtol=1e-5, atol=2e-9)
    np.testing.assert_allclose(timestep.reward, reward, rtol=1e-6)
    np.testing.assert_array_equal(timestep.last, terminated)
    np.testing.assert_array_equal(timestep.discount, 1.0 - terminated)
    np.testing.assert_array_equal(after.physics, timestep.next_obs)
    return timestep


@BOTH
def test_a_step_matches_gymnasium_for_all_states_and_actions(steps_of, name):
    timestep = compare(steps_of, name, *everywhere(name))
    assert 40 < np.sum(timestep.last) < 600


@BOTH
def test_a_step_matches_gymnasium_in_states_of_a_random_policy(
    steps_of, visited_states, name
):
    states = visited_states(name, 20)
    compare(steps_of, name, states, everywhere(name, len(states))[1])


@pytest.mark.parametrize(("name", "changed"), CHANGES)
def test_parameters_match_gymnasium(steps_of, name, changed):
    states, actions = everywhere(name, 400)
    timestep = compare(steps_of, name, states, actions, **changed)
    _, plain = step_of(name)(physics_of(name), states, actions)
    plain = jax.device_get(plain)
    assert np.any(timestep.next_obs != plain.next_obs) | np.any(
        timestep.last != plain.last
    )


def test_gravity_has_the_same_effect_on_both_cars():
    states = everywhere("MountainCar-v0")[0]
    coasting = {"gravity": 0.001, "goal_position": 0.5, "goal_velocity": 0.0}
    one = step_of("MountainCar-v0")(
        coasting | {"force": 0.001}, states, np.ones(len(states), int)
    )
    other = step_of("MountainCarContinuous-v0")(
        coasting | {"power": 0.001}, states, np.zeros((len(states), 1), np.float32)
    )
    np.testing.assert_array_equal(one[1].next_obs, other[1].next_obs)


@BOTH
def test_the_goal_position_matches_gymnasium_to_float32_precision(steps_of, name):
    goal = 0.5 if name == "MountainCar-v0" else 0.45
    position = (goal + np.arange(-60, 60) * 3e-8).astype(np.float32)
    # So that the car hardly moves.
    speed = (0.0025 * np.cos(3 * position.astype(np.float64)) + 1e-9).astype(np.float32)
    states = np.stack([position, speed], axis=1)
    still = np.ones(120, int) if name == "MountainCar-v0" else np.zeros((120, 1))
    reference_states = states.astype(np.float64) if name == "MountainCar-v0" else states
    _, _, terminated = steps_of(
        name, reference_states, still.astype(np.float32).astype(int)
    )
    last = step_of(name)(physics_of(name), states, still)[1].last
    assert np.sum(last != terminated) <= 3  # two of these positions are one float32
    assert 40 < np.sum(terminated) < 80


@BOTH
def test_the_left_wall_stops_the_car(steps_of, name):
    # gymnax does not stop the continuous car.
    states = np.array([[-1.2, -0.03], [-1.19, -0.05], [-1.2, 0.02]], np.float32)
    actions = np.array([0, 0, 2])
    if name != "MountainCar-v0":
        actions = np.array([[-1], [-1], [1]], np.float32)
    obs = np.asarray(compare(steps_of, name, states, actions).next_obs)
    np.testing.assert_array_equal(obs[:2], np.array([[-1.2, 0]] * 2, np.float32))
    assert obs[2, 1] > 0


def test_an_action_outside_the_box_is_clipped_for_the_push_but_not_for_its_cost():
    states = np.array([[-0.5, 0.01]] * 2, np.float32)
    step = step_of("MountainCarContinuous-v0")
    physics = physics_of("MountainCarContinuous-v0")
    outside = step(physics, states, np.array([[3.0], [-2.0]], np.float32))[1]
    inside = step(physics, states, np.array([[1.0], [-1.0]], np.float32))[1]
    np.testing.assert_array_equal(outside.obs, inside.obs)
    np.testing.assert_allclose(outside.reward, [-0.9, -0.4], rtol=1e-6)
    np.testing.assert_allclose(inside.reward, -0.1, rtol=1e-6)


@BOTH
def test_spaces_and_time_limit_match_gymnasium(name):
    env = gymnasium.make(name)
    core = FACTORIES[name]()
    assert core.observation == env.observation_space
    assert core.action == env.action_space
    found = registry.find("environment", name)
    assert found.facts["time_limit"] == env.spec.max_episode_steps


@BOTH
def test_episodes_begin_at_rest_in_the_valley(is_uniform, name):
    keys = jax.random.split(jax.random.key(3), 20_000)
    state, obs = jax.jit(jax.vmap(FACTORIES[name]().reset))(keys)
    assert is_uniform(obs[:, :1], -0.6, -0.4)
    np.testing.assert_array_equal(obs[:, 1], 0)
    np.testing.assert_array_equal(obs, state.physics)


@BOTH
def test_the_car_is_drawn_on_the_hill_and_the_flag_at_the_goal(name):
    def blue(position):
        state = MountainCarState(jnp.array([position, 0.0]))
        frame = FACTORIES[name]().render(state).astype(int)
        rows, columns = np.nonzero(np.abs(frame - [59, 111, 182]).sum(-1) < 30)
        return rows.mean(), columns.mean(), frame

    bottom, left, right = blue(-0.5), blue(-1.1), blue(0.4)
    assert bottom[0] > left[0] > right[0]
    assert left[1] < bottom[1] < right[1]
    goal = 0.5 if name == "MountainCar-v0" else 0.45
    green = np.nonzero(np.abs(left[2] - [77, 143, 92]).sum(-1) < 30)[1]
    assert abs(green.min() - (goal + 1.2) / 1.8 * 600) < 5


@pytest.mark.parametrize("name", ["MountainCar-v0", "MountainCarContinuous-v0"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_position": 0.6}, "the valley is from 0.6 to 0.6"),
        ({"max_position": -2.0}, "the valley is from -1.2 to -2"),
        ({"max_speed": -1.0}, "`max_speed`"),
    ],
)
def test_a_valley_without_room_is_refused(name, options, words):
    with pytest.raises(RlcliError, match=re.escape(words)):
        rlcli.make(name, **options)
