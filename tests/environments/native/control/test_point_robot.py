"""PointRobot, compared with NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.control.point_robot import PointRobotState, point_robot
from rlcli.errors import RlcliError
from rlcli.spaces import bounds

BATCH = 2000


def states_and_actions():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi, BATCH)
    goal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    position = goal + rng.normal(0, 0.2, (BATCH, 2))
    actions = rng.uniform(-0.2, 0.2, (BATCH, 2))
    position, goal, actions = (
        each.astype(np.float32) for each in (position, goal, actions)
    )
    return PointRobotState(position, goal), actions


def step_batch(core, state, actions, seed=1):
    noise = jax.jit(jax.vmap(core.draw))(jax.random.split(jax.random.key(seed), BATCH))
    taken = jax.jit(jax.vmap(core.step))(state, actions, noise)
    return jax.tree.map(np.asarray, taken)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("starts_again", [False, True])
def test_a_step_follows_the_rules(dense, starts_again):
    state, actions = states_and_actions()
    core = point_robot(dense=dense, starts_again=starts_again, shows_goal=True)
    after, timestep = step_batch(core, state, actions)
    moved = state.position + np.clip(actions, -0.1, 0.1)
    distance = np.hypot(*(moved - state.goal).T)
    sure = np.abs(distance - 0.2) > 1e-6
    near = distance <= 0.2
    assert 0.2 < near.mean() < 0.8
    expected = -distance if dense else near
    np.testing.assert_allclose(
        timestep.reward[sure], expected[sure], rtol=1e-5, atol=1e-6
    )
    if starts_again:
        moved[near] = 0.0
    np.testing.assert_allclose(after.position[sure], moved[sure], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(after.goal, state.goal)
    both = np.concatenate([after.position, after.goal], axis=1)
    np.testing.assert_array_equal(timestep.obs, both)
    assert not np.any(timestep.last)


def test_max_force_and_goal_radius_are_options():
    state, actions = states_and_actions()
    core = point_robot(max_force=0.15, goal_radius=0.35)
    after, timestep = step_batch(core, state, actions)
    moved = state.position + np.clip(actions, -0.15, 0.15)
    np.testing.assert_allclose(after.position, moved, rtol=1e-6, atol=1e-7)
    distance = np.hypot(*(moved - state.goal).T)
    sure = np.abs(distance - 0.35) > 1e-6
    np.testing.assert_array_equal(timestep.reward[sure], (distance <= 0.35)[sure])
    np.testing.assert_array_equal(bounds(core.action)[1], np.float32(0.15))


def radius_and_angle(points):
    points = np.asarray(points, np.float64)
    return np.stack([np.hypot(*points.T), np.arctan2(points[:, 1], points[:, 0])], 1)


def test_goals_are_on_the_half_circle_and_episodes_begin_at_the_origin(is_uniform):
    keys = jax.random.split(jax.random.key(0), BATCH)
    core = point_robot(circle_radius=1.5)
    state, obs = jax.jit(jax.vmap(core.reset))(keys)
    radius, angle = radius_and_angle(state.goal).T
    np.testing.assert_allclose(radius, 1.5, rtol=1e-6)
    assert is_uniform(angle[:, None], 0, np.pi)
    np.testing.assert_array_equal(obs, 0.0)


def test_start_positions_can_be_anywhere_in_the_half_circle(is_uniform):
    keys = jax.random.split(jax.random.key(0), BATCH)
    core = point_robot(circle_radius=1.5, starts_anywhere=True, starts_again=True)
    state, obs = jax.jit(jax.vmap(core.reset))(keys)
    places = radius_and_angle(obs)
    assert is_uniform(places, [0, 0], [1.5, np.pi])
    there = PointRobotState(state.goal, state.goal)
    again, timestep = step_batch(core, there, np.zeros((BATCH, 2), np.float32))
    np.testing.assert_array_equal(timestep.reward, 1.0)
    assert is_uniform(radius_and_angle(again.position), [0, 0], [1.5, np.pi])
    np.testing.assert_array_equal(again.goal, state.goal)


def test_the_robot_is_drawn_at_its_position_or_at_the_edge():
    core = point_robot()

    def robot(x, y):
        state = PointRobotState(jnp.array([x, y]), jnp.array([0.0, 1.0]))
        frame = core.render(state).astype(int)[:360]  # above the legend
        rows, columns = np.nonzero(np.abs(frame - [194, 65, 58]).sum(-1) < 30)
        return (columns.mean() - 300) / 220, (300 - rows.mean()) / 220

    assert robot(0.5, 0.25) == pytest.approx((0.5, 0.25), abs=0.02)
    assert robot(9.0, 0.5) == pytest.approx((288 / 220, 0.5), abs=0.02)


@pytest.mark.parametrize("dense", [False, True])
def test_the_reward_is_a_function_of_the_goals(dense):
    state, actions = states_and_actions()
    core = point_robot(dense=dense, goals=True)
    after, timestep = step_batch(core, state, actions)
    obs = timestep.next_obs
    np.testing.assert_array_equal(obs["achieved_goal"], after.position)
    np.testing.assert_array_equal(obs["observation"], after.position)
    np.testing.assert_array_equal(obs["desired_goal"], state.goal)
    reward, discount = jax.jit(jax.vmap(core.goal_reward))(
        obs["achieved_goal"], obs["desired_goal"]
    )
    np.testing.assert_allclose(reward, timestep.reward, atol=1e-6)
    np.testing.assert_array_equal(discount, timestep.discount)


def test_goals_and_starting_again_exclude_each_other():
    with pytest.raises(RlcliError, match="exclude each other"):
        point_robot(goals=True, starts_again=True)
