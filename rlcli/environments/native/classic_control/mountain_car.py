"""MountainCar: an underpowered car gains speed by first driving away from the goal.

With discrete actions (Moore, 1990), and with continuous actions.
"""

import itertools
import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt

from rlcli.environments import drawing
from rlcli.environments.native.classic_control.angles import sine_and_cosine
from rlcli.environments.native.core import native_core
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, Core, Key, NonNegative, Structural


class MountainCarState(NamedTuple):
    """The position and velocity of the car."""

    physics: Array  # float32[2]: position, speed; the observation


class Valley(NamedTuple):
    """The limits of position and speed, Python numbers; the goal may be traced."""

    left: float
    right: float
    max_speed: float
    goal: Array | float
    goal_speed: Array | float


@register("environment", "MountainCar-v0", time_limit=200)
def mountain_car(
    *,
    force: NonNegative = 0.001,
    gravity: float = 0.0025,
    min_position: Structural = -1.2,
    max_position: Structural = 0.6,
    max_speed: Annotated[Structural, Gt(0.0)] = 0.07,
    goal_position: float = 0.5,
    goal_velocity: float = 0.0,
) -> Core:
    """Drives an underpowered car out of a valley: reward −1 per step until the goal.

        v′ = clip(v + (a − 1) force − gravity cos 3x, ±max_speed)
        x′ = clip(x + v′, min_position, max_position)

    The left wall stops the car: there v′ = 0 if v′ < 0. Observation: float32 `[2]`: x,
    v. Actions: 0 pushes left, 1 does not push, 2 pushes right. An episode begins at
    rest, with x uniform in [−0.6, −0.4], and terminates when x ≥ goal_position and v ≥
    goal_velocity. From Moore's thesis (1990,
    https://www.cl.cam.ac.uk/techreports/UCAM-CL-TR-209.pdf), as in Gymnasium.
    """
    valley = Valley(min_position, max_position, max_speed, goal_position, goal_velocity)

    def reward(action: Array, at_goal: Array) -> Array:
        del action, at_goal  # every step costs the same
        return jnp.full((), -1.0, jnp.float32)

    return _mountain_car_core(
        valley, gravity, lambda action: (action - 1) * force, reward, 3
    )


@register("environment", "MountainCarContinuous-v0", time_limit=999)
def mountain_car_continuous(
    *,
    power: NonNegative = 0.0015,
    gravity: float = 0.0025,
    min_position: Structural = -1.2,
    max_position: Structural = 0.6,
    max_speed: Annotated[Structural, Gt(0.0)] = 0.07,
    goal_position: float = 0.45,
    goal_velocity: float = 0.0,
) -> Core:
    """Drives an underpowered car out of a valley: reward 100 at the goal, minus effort.

        v′ = clip(v + power clip(a, ±1) − gravity cos 3x, ±max_speed)
        x′ = clip(x + v′, min_position, max_position)
        reward = 100 [goal reached] − a² / 10

    The left wall stops the car: there v′ = 0 if v′ < 0. Observation: float32 `[2]`: x,
    v. Action: float32 `[1]`; an action outside [−1, 1] is clipped for the push but not
    for its cost. An episode begins at rest, with x uniform in [−0.6, −0.4], and
    terminates when x ≥ goal_position and v ≥ goal_velocity. As in Gymnasium, which
    merged Moore's car (1990, https://www.cl.cam.ac.uk/techreports/UCAM-CL-TR-209.pdf)
    with one of J. A. Martín H.
    """
    valley = Valley(min_position, max_position, max_speed, goal_position, goal_velocity)

    def push(action: Array) -> Array:
        return jnp.clip(action[0], -1.0, 1.0) * power

    def reward(action: Array, at_goal: Array) -> Array:
        return jnp.where(at_goal, 100.0, 0.0) - 0.1 * action[0] ** 2

    actions = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return _mountain_car_core(valley, gravity, push, reward, actions)


def _mountain_car_core(
    valley: Valley,
    gravity: Array | float,
    push: Callable[[Array], Array],
    reward: Callable[[Array, Array], Array],
    actions: gymnasium.Space | int,
) -> Core:
    """Builds a car with the force `push(action)` and `reward(action, at_goal)`."""
    if not valley.left < valley.right:
        message = f"the valley is from {valley.left:g} to {valley.right:g}"
        raise RlcliError(message, "set `min_position` below `max_position`")
    low = np.array([valley.left, -valley.max_speed], np.float32)
    high = np.array([valley.right, valley.max_speed], np.float32)

    def begin(key: Key) -> MountainCarState:
        position = jax.random.uniform(key, (), jnp.float32, -0.6, -0.4)
        return MountainCarState(jnp.stack([position, jnp.zeros_like(position)]))

    def step(state: MountainCarState, action: Array) -> tuple:
        position, speed = state.physics
        _, slope = sine_and_cosine(3 * position)
        speed = speed + push(action) - gravity * slope
        speed = jnp.clip(speed, -valley.max_speed, valley.max_speed)
        position = jnp.clip(position + speed, valley.left, valley.right)
        speed = jnp.where((position <= valley.left) & (speed < 0), 0.0, speed)
        at_goal = (position >= valley.goal) & (speed >= valley.goal_speed)
        state = MountainCarState(jnp.stack([position, speed]))
        return state, reward(action, at_goal), at_goal

    def observe(state: MountainCarState) -> Array:
        return state.physics

    def render(state: MountainCarState) -> np.ndarray:
        return _draw(float(state.physics[0]), valley)

    observation = gymnasium.spaces.Box(low, high, dtype=np.float32)
    return native_core(begin, step, observe, observation, actions, render=render)


def _draw(position: float, valley: Valley) -> np.ndarray:
    """Draws the car on its hills, `[400, 600, 3]` uint8; x and y have one scale."""
    width, height = 600, 400
    metre = width / (valley.right - valley.left)
    canvas = drawing.Canvas(width, height, "#eef3f7")

    def to_pixel(x: float, height_above: float = 0.0) -> drawing.Point:
        level = 0.45 * math.sin(3 * x) + 0.55
        return (x - valley.left) * metre, height - 6 - level * metre - height_above

    hills = [to_pixel(float(x)) for x in np.linspace(valley.left, valley.right, 121)]
    canvas.polygon([(0, height), *hills, (width, height)], "#d9d2c5")
    for start, end in itertools.pairwise(hills):
        canvas.line(start, end, 3, "#8d8371")

    foot, tip = to_pixel(float(valley.goal)), to_pixel(float(valley.goal), 52)
    canvas.line(foot, tip, 3, drawing.INK)
    pennant = [tip, (tip[0] + 26, tip[1] + 9), (tip[0], tip[1] + 18)]
    canvas.polygon(pennant, drawing.GREEN)

    slope = math.atan(1.35 * math.cos(3 * position))
    x, y = to_pixel(position)
    along, up = math.cos(slope), math.sin(slope)

    def on_car(forward: float, height_above: float) -> drawing.Point:
        return (
            x + forward * along - height_above * up,
            y - forward * up - height_above * along,
        )

    cabin = [on_car(*corner) for corner in ((-12, 24), (-8, 36), (8, 36), (13, 24))]
    canvas.polygon(cabin, "#7fa3d1")
    canvas.line(on_car(-19, 18), on_car(19, 18), 14, drawing.BLUE)
    for wheel in (-13, 13):
        canvas.circle(on_car(wheel, 9), 8, drawing.INK)
        canvas.circle(on_car(wheel, 9), 3, drawing.GREY)
    return canvas.pixels()
