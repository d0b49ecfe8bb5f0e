"""PointRobot: a point that searches for a hidden goal on a half circle."""

import itertools
import math
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt

from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key, Positive, Structural

METRE = 220  # pixels


class PointRobotState(NamedTuple):
    """The positions of the robot and its goal, float32 `[2]` each: x and y."""

    position: Array
    goal: Array


@register("environment", "PointRobot-v0", time_limit=100)
def point_robot(
    *,
    max_force: Annotated[Structural, Gt(0.0)] = 0.1,
    circle_radius: Positive = 1.0,
    goal_radius: Positive = 0.2,
    dense: bool = False,
    shows_goal: bool = False,
    starts_anywhere: bool = False,
    starts_again: bool = False,
    goals: bool = False,
) -> Core:
    """Moves a point to a hidden goal: reward 1 for every step that ends near it.

        position′ = position + clip(action, ±max_force)
        reward = 1 if |position′ − goal| ≤ goal_radius, else 0

    The goal is drawn in each episode from the half circle y ≥ 0 around the origin,
    where the robot starts. The episode never terminates. The task needs memory: use the
    wrapper `previous` to observe the last action and its reward.
    Observation: float32 `[2]`, the position. Action: float32 `[2]`; an action outside
    the bounds is clipped. From (Dorfman et al., 2021,
    https://arxiv.org/abs/2008.02598).

    Args:
        max_force: the maximum displacement per step, along x and along y.
        circle_radius: the radius of the half circle of goals.
        goal_radius: the distance to the goal that counts as near.
        dense: whether the reward is −|position′ − goal| instead.
        shows_goal: whether the observation includes the goal: float32 `[4]`.
        starts_anywhere: whether an episode begins at a random position in the half
            circle, with uniform radius and direction.
        starts_again: whether a step that ends near the goal moves the robot back to a
            start position.
        goals: whether the observation is a dict of `observation`, `achieved_goal` (both
            the position) and `desired_goal`, for the replay `hindsight`.
    """
    if goals and starts_again:
        raise RlcliError(
            "`goals` and `starts_again` of PointRobot-v0 exclude each other: the "
            "position after a step would not be the one that was rewarded",
            "remove one of them",
        )

    def observe(state: PointRobotState) -> ArrayTree:
        if goals:
            return {
                "observation": state.position,
                "achieved_goal": state.position,
                "desired_goal": state.goal,
            }
        return jnp.concatenate(state) if shows_goal else state.position

    def start(uniform: ArrayTree) -> Array:
        if not starts_anywhere:
            return jnp.zeros(2)
        return circle_radius * uniform[0] * _direction(uniform[1])

    def begin(key: Key) -> PointRobotState:
        uniform = jax.random.uniform(key, (3,))
        goal = circle_radius * _direction(uniform[0])
        return PointRobotState(start(uniform[1:]), goal)

    def goal_reward(achieved: Array, desired: Array) -> tuple[Array, Array]:
        distance = jnp.sqrt(jnp.sum((achieved - desired) ** 2))
        reward = -distance if dense else (distance <= goal_radius).astype(jnp.float32)
        return reward, jnp.float32(1.0)

    def step(state: PointRobotState, action: Array, noise: ArrayTree) -> tuple:
        position = state.position + jnp.clip(action, -max_force, max_force)
        reward, _ = goal_reward(position, state.goal)
        if starts_again:
            distance = jnp.sqrt(jnp.sum((position - state.goal) ** 2))
            is_near = distance <= goal_radius
            position = jnp.where(is_near, start(noise), position)
        return state._replace(position=position), reward, jnp.asarray(False)

    def draw(key: Key) -> ArrayTree:
        is_random = starts_again and starts_anywhere
        return jax.random.uniform(key, (2,)) if is_random else ()

    def render(state: PointRobotState) -> np.ndarray:
        points = np.asarray(state.position), np.asarray(state.goal)
        return _draw(*points, float(circle_radius), float(goal_radius))

    def box(size: int) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    names = ("observation", "achieved_goal", "desired_goal")
    goal_space = gymnasium.spaces.Dict(dict.fromkeys(names, box(2)))
    observation = goal_space if goals else box(4 if shows_goal else 2)
    action = gymnasium.spaces.Box(-max_force, max_force, (2,), np.float32)
    return native_core(
        begin,
        step,
        observe,
        observation,
        action,
        render=render,
        draw=draw,
        goal_reward=goal_reward if goals else None,
    )


def _direction(uniform: Array) -> Array:
    """Maps a number in [0, 1) to a unit vector `[2]` with y ≥ 0."""
    angle = math.pi * uniform
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _draw(
    position: np.ndarray, goal: np.ndarray, circle: float, near: float
) -> np.ndarray:
    """Draws the half circle and the robot, at the edge if outside: `[400, 600, 3]`."""
    canvas = drawing.Canvas(600, 400)
    scale = METRE / max(1.0, circle + near - 0.2)

    def pixel(x: float, y: float) -> drawing.Point:
        return 300 + scale * x, 300 - scale * y

    arc = np.linspace(0, math.pi, 61)
    points = [pixel(circle * math.cos(a), circle * math.sin(a)) for a in arc]
    canvas.circle(pixel(*goal), scale * near, "#d5e6d9")
    for start, end in itertools.pairwise(points):
        canvas.line(start, end, 2, drawing.GREY)
    canvas.line(pixel(-circle, 0), pixel(circle, 0), 1, drawing.MIST)
    canvas.circle(pixel(0, 0), 4, drawing.GREY)
    canvas.circle(pixel(*goal), 6, drawing.GREEN)
    x, y = pixel(*position)
    canvas.circle((min(max(x, 12), 588), min(max(y, 12), 388)), 11, drawing.RED)
    canvas.legend((16, 370), {"robot": drawing.RED, "goal": drawing.GREEN})
    return canvas.pixels()
