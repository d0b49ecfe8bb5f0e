"""Reacher: an arm with any number of joints moves its tip to a target."""

import math
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.classic_control.angles import sine_and_cosine, wrap_angle
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Count, Key, Positive


class ReacherState(NamedTuple):
    """The angles and speeds of the arm, and the target."""

    angles: Array  # float32 [joints]: between each link and the x axis, in [−π, π]
    speeds: Array  # float32 [joints]: radians per second
    target: Array  # float32 [2]: x and y


@register("environment", "Reacher-v0", time_limit=100)
def reacher(
    *, joints: Count = 2, torque_scale: Positive = 1.0, dt: Positive = 0.05
) -> Core:
    """Moves the tip of an arm to a target: the reward decreases with their distance.

        ω′ = ω + torque_scale · action · dt     θ′ = θ + ω′ dt
        tip = Σᵢ (cos θᵢ′, sin θᵢ′)             reward = exp(−|tip − target|²)

    The arm is fixed at the origin, every link has length 1, and θᵢ is the angle between
    link i and the x axis. There is no friction.
    Observation: float32 `[3 · joints + 2]`: cos θ, sin θ, ω, the target. Action:
    float32 `[joints]`; an action outside the bounds is clipped. An episode begins with
    random angles, speeds uniform in [−1, 1], and a target uniform in the square around
    the arm's range, which includes corners out of reach. It never terminates. The task
    is that of Ivy's gym (Lenton et al., 2021, https://arxiv.org/abs/2102.02886), for
    any number of joints.

    Args:
        joints: the number of joints.
        torque_scale: the angular acceleration for an action of 1, in radians per s².
        dt: seconds per step.
    """
    ones, free = np.ones(2 * joints), np.full(joints, np.inf)
    high = np.concatenate([ones, free, np.full(2, joints)]).astype(np.float32)

    def observe(state: ReacherState) -> tuple[Array, Array]:
        """The observation, and the position of the tip."""
        sine, cosine = sine_and_cosine(state.angles)
        tip = jnp.stack([jnp.sum(cosine), jnp.sum(sine)])
        return jnp.concatenate([cosine, sine, state.speeds, state.target]), tip

    def begin(key: Key) -> tuple[ReacherState, Array]:
        uniform = jax.random.uniform(key, (2 * joints + 2,), minval=-1.0)
        state = ReacherState(
            math.pi * uniform[:joints],
            uniform[joints : 2 * joints],
            joints * uniform[2 * joints :],
        )
        return state, observe(state)[0]

    def step(state: ReacherState, action: Array) -> tuple:
        speeds = state.speeds + torque_scale * jnp.clip(action, -1.0, 1.0) * dt
        # Wrapped in every step: a growing angle would lose float32 precision.
        state = ReacherState(
            wrap_angle(state.angles + speeds * dt), speeds, state.target
        )
        obs, tip = observe(state)
        reward = jnp.exp(-jnp.sum((tip - state.target) ** 2))
        return state, obs, reward, jnp.asarray(False)

    def render(state: ReacherState) -> np.ndarray:
        return _draw(np.asarray(state.angles), np.asarray(state.target))

    observation = gymnasium.spaces.Box(-high, high, dtype=np.float32)
    action = gymnasium.spaces.Box(-1.0, 1.0, (joints,), np.float32)
    return native_core(begin, step, None, observation, action, render=render)


def _draw(angles: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Draws the arm, its target and the reachable area, `[440, 440, 3]` uint8."""
    canvas = drawing.Canvas(440, 440, "#eeece8")
    reach = 200 / len(angles)

    def pixel(x: float, y: float) -> drawing.Point:
        return 220 + reach * x, 220 - reach * y

    canvas.circle((220, 220), 206, drawing.PAPER)
    centre = pixel(*target)
    for radius, fill in ((15, drawing.GREEN), (10, drawing.PAPER), (5, drawing.GREEN)):
        canvas.circle(centre, radius, fill)
    x = np.concatenate([[0.0], np.cumsum(np.cos(angles))])
    y = np.concatenate([[0.0], np.cumsum(np.sin(angles))])
    width = min(18.0, 6 + reach / 8)
    for i in range(len(angles)):
        canvas.line(pixel(x[i], y[i]), pixel(x[i + 1], y[i + 1]), width, drawing.BLUE)
    for i in range(len(angles)):
        canvas.circle(pixel(x[i], y[i]), width / 4, drawing.PAPER)
    canvas.circle(pixel(x[-1], y[-1]), width / 2 + 1, drawing.RED)
    return canvas.pixels()
