"""Acrobot: two links with a motor at their joint; raise the tip above a bar."""

import math
from typing import Annotated, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt

from rlcli.environments import drawing
from rlcli.environments.native.classic_control.angles import sine_and_cosine, wrap_angle
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import (
    Array,
    Core,
    Key,
    NonNegative,
    Positive,
    Structural,
)


class AcrobotState(NamedTuple):
    """The angles and angular velocities of the links."""

    physics: Array  # float32[4]: θ₁ (0: down), θ₂ (relative to link 1), θ̇₁, θ̇₂


class Links(NamedTuple):
    """The coefficients of the equations of motion; Python numbers or traced values."""

    inertia_1: Array | float  # m₁c₁² + m₂(l² + c₂²) + 2I: joint 1, without θ₂
    inertia_2: Array | float  # m₂c₂² + I: joint 2
    coupling: Array | float  # m₂lc₂
    weight_1: Array | float  # (m₁c₁ + m₂l) g
    weight_2: Array | float  # m₂c₂g
    coriolis: float  # 1 in the book; 0 in the paper, which lacks the term


@register("environment", "Acrobot-v1", time_limit=500)
def acrobot(
    *,
    book_or_nips: Literal["book", "nips"] = "book",
    gravity: float = 9.8,
    link_length: Positive = 1.0,
    link_mass_1: Positive = 1.0,
    link_mass_2: Positive = 1.0,
    link_center_1: Positive = 0.5,
    link_center_2: Positive = 0.5,
    link_inertia: Positive = 1.0,
    torque: NonNegative = 1.0,
    torque_noise: NonNegative = 0.0,
    dt: Positive = 0.2,
    max_speed_1: Annotated[Structural, Gt(0.0)] = 4 * math.pi,
    max_speed_2: Annotated[Structural, Gt(0.0)] = 9 * math.pi,
) -> Core:
    """Swings the tip of two links above a bar: reward −1 per step until it gets there.

        d₁ = m₁c₁² + m₂(l² + c₂² + 2lc₂ cos θ₂) + 2I      d₂ = m₂(c₂² + lc₂ cos θ₂) + I
        φ₂ = m₂c₂g sin(θ₁ + θ₂)
        φ₁ = −m₂lc₂ θ̇₂(θ̇₂ + 2θ̇₁) sin θ₂ + (m₁c₁ + m₂l)g sin θ₁ + φ₂
        θ̈₂ = (u + φ₁d₂/d₁ − m₂lc₂ θ̇₁² sin θ₂ − φ₂) / (m₂c₂² + I − d₂²/d₁)
        θ̈₁ = −(d₂θ̈₂ + φ₁) / d₁

    Each step integrates these equations over `dt` with one fourth-order Runge-Kutta
    step, then wraps the angles to [−π, π] and clips the speeds. Observation: float32
    `[6]`: cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂. Actions 0, 1, 2: u = −torque, 0,
    torque. An episode begins with all four values uniform in ±0.1, and terminates, with
    reward 0, when −cos θ₁ − cos(θ₁ + θ₂) > 1. From (Sutton, 1996,
    https://papers.nips.cc/paper/1995/hash/8f1d43620bc6bb580df6e80b0dc05c48-Abstract.html),
    as in Gymnasium.

    Args:
        book_or_nips: the equations of Sutton and Barto's book, or those of the NIPS
            paper, which lack θ̇₁² sin θ₂.
        link_length: l, the length of both links.
        link_center_1: c₁, the distance from joint 1 to the center of mass of link 1.
        link_inertia: I, the moment of inertia of each link.
        torque_noise: the half-width of the uniform noise added to the torque.
        dt: seconds per step.
    """
    high = np.array([1.0, 1.0, 1.0, 1.0, max_speed_1, max_speed_2], np.float32)
    square = link_mass_2 * link_center_2**2
    links = Links(
        inertia_1=link_mass_1 * link_center_1**2
        + link_mass_2 * link_length**2
        + square
        + 2 * link_inertia,
        inertia_2=square + link_inertia,
        coupling=link_mass_2 * link_length * link_center_2,
        weight_1=(link_mass_1 * link_center_1 + link_mass_2 * link_length) * gravity,
        weight_2=link_mass_2 * link_center_2 * gravity,
        coriolis=1.0 if book_or_nips == "book" else 0.0,
    )

    def begin(key: Key) -> tuple[AcrobotState, Array]:
        physics = jax.random.uniform(key, (4,), jnp.float32, -0.1, 0.1)
        return AcrobotState(physics), _observe(*physics)

    # A traced number may have any value; only a constant 0 needs no noise.
    noisy = not isinstance(torque_noise, int | float) or torque_noise != 0

    def draw(key: Key) -> Array:
        return jax.random.uniform(key, (), jnp.float32, -torque_noise, torque_noise)

    def step(state: AcrobotState, action: Array, noise: Array | float = 0.0) -> tuple:
        total_torque = (action - 1) * torque + noise
        theta_1, theta_2, speed_1, speed_2 = _runge_kutta_step(
            links, state.physics, total_torque, dt
        )
        theta_1, theta_2 = wrap_angle(theta_1), wrap_angle(theta_2)
        speed_1 = jnp.clip(speed_1, -max_speed_1, max_speed_1)
        speed_2 = jnp.clip(speed_2, -max_speed_2, max_speed_2)
        obs = _observe(theta_1, theta_2, speed_1, speed_2)
        cos_1, sin_1, cos_2, sin_2 = obs[:4]
        # cos(θ₁ + θ₂), from the sines and cosines above.
        reached = -cos_1 - (cos_1 * cos_2 - sin_1 * sin_2) > 1.0
        physics = jnp.stack([theta_1, theta_2, speed_1, speed_2])
        return AcrobotState(physics), obs, jnp.where(reached, 0.0, -1.0), reached

    def render(state: AcrobotState) -> np.ndarray:
        return _draw(*(float(value) for value in state.physics[:2]))

    observation = gymnasium.spaces.Box(-high, high, dtype=np.float32)
    noise = draw if noisy else None
    return native_core(begin, step, None, observation, 3, render=render, draw=noise)


def _observe(theta_1: Array, theta_2: Array, speed_1: Array, speed_2: Array) -> Array:
    sin_1, cos_1 = sine_and_cosine(theta_1)
    sin_2, cos_2 = sine_and_cosine(theta_2)
    return jnp.stack([cos_1, sin_1, cos_2, sin_2, speed_1, speed_2])


def _derivatives(
    links: Links, position: tuple[Array, ...], torque: Array
) -> tuple[Array, ...]:
    """Time derivatives of the two angles and their speeds."""
    theta_1, theta_2, speed_1, speed_2 = position
    sin_1, cos_1 = sine_and_cosine(theta_1)
    sin_2, cos_2 = sine_and_cosine(theta_2)
    swing = links.coupling * sin_2
    d_1 = links.inertia_1 + 2 * links.coupling * cos_2
    d_2 = links.inertia_2 + links.coupling * cos_2
    phi_2 = links.weight_2 * (sin_1 * cos_2 + cos_1 * sin_2)
    phi_1 = links.weight_1 * sin_1 + phi_2
    phi_1 = phi_1 - swing * speed_2 * (speed_2 + 2 * speed_1)
    moment = torque - links.coriolis * swing * speed_1**2 - phi_2
    # Numerator and denominator are multiplied by d₁, which saves a division.
    acceleration_2 = (d_1 * moment + d_2 * phi_1) / (d_1 * links.inertia_2 - d_2**2)
    acceleration_1 = -(d_2 * acceleration_2 + phi_1) / d_1
    return speed_1, speed_2, acceleration_1, acceleration_2


def _runge_kutta_step(
    links: Links, physics: Array, torque: Array, dt: Array | float
) -> tuple[Array, ...]:
    """Takes one classical Runge-Kutta step, without wrapping or clipping."""
    start = tuple(physics)

    def advance_state(
        slope: tuple[Array, ...], time: Array | float
    ) -> tuple[Array, ...]:
        return tuple(x + time * dx for x, dx in zip(start, slope, strict=True))

    k_1 = _derivatives(links, start, torque)
    k_2 = _derivatives(links, advance_state(k_1, dt / 2), torque)
    k_3 = _derivatives(links, advance_state(k_2, dt / 2), torque)
    k_4 = _derivatives(links, advance_state(k_3, dt), torque)
    mean = [
        (a + 2 * (b + c) + d) / 6 for a, b, c, d in zip(k_1, k_2, k_3, k_4, strict=True)
    ]
    return advance_state(tuple(mean), dt)


def _draw(theta_1: float, theta_2: float) -> np.ndarray:
    """Draws the links and the bar, `[400, 400, 3]` uint8."""
    canvas = drawing.Canvas(400, 400)
    reach, top = 88.0, 200.0
    joint = (200 + reach * math.sin(theta_1), top + reach * math.cos(theta_1))
    angle = theta_1 + theta_2
    tip = (joint[0] + reach * math.sin(angle), joint[1] + reach * math.cos(angle))
    canvas.line((14, top - reach), (386, top - reach), 3, drawing.GREEN)
    canvas.line((200, top), joint, 20, drawing.BLUE)
    canvas.line(joint, tip, 16, "#7fa3d1")
    for centre, radius in (((200.0, top), 7), (joint, 6)):
        canvas.circle(centre, radius, drawing.INK)
        canvas.circle(centre, radius / 2.5, drawing.PAPER)
    canvas.circle(tip, 6, drawing.RED)
    return canvas.pixels()
