"""Pendulum: swing a rod up with a torque too weak to lift it, and keep it upright."""

import math
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt

from rlcli.environments import drawing
from rlcli.environments.native.classic_control.angles import sine_and_cosine, wrap_angle
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Key, Positive, Structural


class PendulumState(NamedTuple):
    """The angle and angular velocity of the rod."""

    angle: Array  # float32: radians from upright, counterclockwise; in [−π, π]
    speed: Array  # float32: radians per second


@register("environment", "Pendulum-v1", time_limit=200)
def pendulum(
    *,
    g: float = 10.0,
    mass: Positive = 1.0,
    length: Positive = 1.0,
    dt: Positive = 0.05,
    max_speed: Annotated[Structural, Gt(0.0)] = 8.0,
    max_torque: Annotated[Structural, Gt(0.0)] = 2.0,
) -> Core:
    """Swings a rod up and keeps it upright: costs grow with angle, speed and torque.

        θ̈ = 3g / (2l) sin θ + 3u / (m l²)      u: the action, clipped to ±max_torque
        θ̇′ = clip(θ̇ + θ̈ dt, ±max_speed)       θ′ = θ + θ̇′ dt
        reward = −(θ² + θ̇² / 10 + u² / 1000)   θ in [−π, π], 0 is upright

    Observation: float32 `[3]`: cos θ, sin θ, θ̇. Action: float32 `[1]`, the torque; an
    action outside the bounds is clipped, for the dynamics and the reward. An episode
    begins at a random angle and never terminates. The equations are Gymnasium's (Towers
    et al., 2024, https://arxiv.org/abs/2407.17032).

    Args:
        g: the acceleration of gravity.
        length: the rod's length, in metres.
        dt: seconds per step.
    """
    high = np.array([1.0, 1.0, max_speed], np.float32)
    pull, push = 1.5 * g / length, 3.0 / (mass * length**2)

    def observe(state: PendulumState) -> Array:
        sine, cosine = sine_and_cosine(state.angle)
        return jnp.stack([cosine, sine, state.speed])

    def begin(key: Key) -> PendulumState:
        limits = np.array([math.pi, 1.0], np.float32)
        angle, speed = jax.random.uniform(key, (2,), jnp.float32, -limits, limits)
        return PendulumState(angle, speed)

    def step(state: PendulumState, action: Array) -> tuple:
        torque = jnp.clip(action[0], -max_torque, max_torque)
        # A state that did not come from `step` may have an angle outside [−π, π].
        angle = wrap_angle(state.angle)
        cost = angle**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        sine, _ = sine_and_cosine(state.angle)
        speed = state.speed + (pull * sine + push * torque) * dt
        speed = jnp.clip(speed, -max_speed, max_speed)
        # Wrapped in every step: a growing angle would lose float32 precision.
        state = PendulumState(wrap_angle(state.angle + speed * dt), speed)
        return state, -cost, jnp.asarray(False)

    def render(state: PendulumState) -> np.ndarray:
        return _draw(float(state.angle), float(length))

    observation = gymnasium.spaces.Box(-high, high, dtype=np.float32)
    action = gymnasium.spaces.Box(-max_torque, max_torque, (1,), np.float32)
    return native_core(begin, step, observe, observation, action, render=render)


def _draw(angle: float, length: float) -> np.ndarray:
    """Draws the rod, `[400, 400, 3]` uint8; a rod longer than 1 m fills the frame."""
    canvas = drawing.Canvas(400, 400)
    centre = (200.0, 200.0)
    reach = 160 * length / max(1.0, length)
    tip = (200 - reach * math.sin(angle), 200 - reach * math.cos(angle))
    canvas.circle(centre, reach + 13, "#f1f0ee")
    canvas.line((200, 187 - reach), (200, 175 - reach), 3, drawing.GREEN)
    canvas.line(centre, tip, 26, drawing.RED)
    canvas.circle(centre, 7, drawing.INK)
    canvas.circle(centre, 3, drawing.PAPER)
    return canvas.pixels()
