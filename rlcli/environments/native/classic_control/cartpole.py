"""CartPole: balance a pole on a cart by pushing the cart left or right."""

import functools
import math
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Gt

from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Key, Positive, Structural


class CartPoleState(NamedTuple):
    """The position and velocity of the cart and the pole."""

    physics: Array  # float32[4]: position, speed, angle, angular speed; the observation


class Cart(NamedTuple):
    """The parameters of the equations of motion; Python numbers or traced values."""

    gravity: Array | float
    masscart: Array | float
    masspole: Array | float
    length: Array | float  # half of the pole's length
    tau: Array | float  # seconds per step


@register("environment", "CartPole-v1", time_limit=500)
def cartpole(
    *,
    gravity: float = 9.8,
    masscart: Positive = 1.0,
    masspole: Positive = 0.1,
    length: Positive = 0.5,
    force_magnitude: float = 10.0,
    tau: Positive = 0.02,
    theta_threshold: Annotated[Structural, Gt(0.0)] = 12.0,
    x_threshold: Annotated[Structural, Gt(0.0)] = 2.4,
    step_reward: float = 1.0,
    failure_reward: float = 1.0,
) -> Core:
    """Balances a pole on a cart: reward 1 per step until the pole falls.

        ẍ = f − (mₚ l / m) θ̈ cos θ              f = (±F + mₚ l θ̇² sin θ) / m
        θ̈ = (g sin θ − f cos θ) / (l (4/3 − mₚ cos² θ / m))          m = m_c + mₚ

    These equations (Barto et al., 1983, https://doi.org/10.1109/TSMC.1983.6313077) are
    integrated by Euler's method, exactly as in Gymnasium.
    Observation: float32 `[4]`: x, ẋ, θ, θ̇. Actions: 0 pushes left, 1 pushes right. An
    episode begins with all four values uniform in ±0.05, and terminates when the
    position or the angle exceeds its threshold.

    Args:
        length: half of the pole's length, in metres.
        tau: seconds per step.
        theta_threshold: the angle at which the pole counts as fallen, in degrees.
        step_reward: the reward of every step except the one that ends the episode.
        failure_reward: the reward of the step that ends the episode. `step_reward: 0`
            and `failure_reward: -1` are Gymnasium's `sutton_barto_reward`.
    """
    radians = math.radians(theta_threshold)
    high = np.array([2 * x_threshold, np.inf, 2 * radians, np.inf], np.float32)
    x_limit, theta_limit = _float32_below(x_threshold), _float32_below(radians)
    cart = Cart(gravity, masscart, masspole, length, tau)

    def begin(key: Key) -> CartPoleState:
        return CartPoleState(jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05))

    def step(state: CartPoleState, action: Array) -> tuple:
        push = jnp.where(action == 1, force_magnitude, -force_magnitude)
        x, x_dot, theta, theta_dot = euler_step(cart, state.physics, push)
        physics = jnp.stack([x, x_dot, theta, theta_dot])
        terminated = (jnp.abs(x) > x_limit) | (jnp.abs(theta) > theta_limit)
        reward = jnp.where(terminated, failure_reward, step_reward)
        return CartPoleState(physics), reward, terminated

    def render(state: CartPoleState) -> np.ndarray:
        x, _, theta, _ = (float(value) for value in state.physics)
        return draw_cartpole(x, theta, float(length), x_threshold)

    observation = gymnasium.spaces.Box(-high, high, dtype=np.float32)
    return native_core(
        begin, step, lambda state: state.physics, observation, 2, render=render
    )


def euler_step(cart: Cart, physics: Array, push: Array) -> tuple[Array, ...]:
    """Takes one step of Euler's method under a force; returns x, ẋ, θ, θ̇."""
    x, x_dot, theta, theta_dot = physics
    total_mass = cart.masscart + cart.masspole
    pole_moment = cart.masspole * cart.length
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    force = (push + pole_moment * jnp.square(theta_dot) * sin) / total_mass
    theta_acc = (cart.gravity * sin - cos * force) / (
        cart.length * (4.0 / 3.0 - cart.masspole * jnp.square(cos) / total_mass)
    )
    x_acc = force - pole_moment * theta_acc * cos / total_mass
    x, x_dot = x + cart.tau * x_dot, x_dot + cart.tau * x_acc
    theta = theta + cart.tau * theta_dot
    theta_dot = theta_dot + cart.tau * theta_acc
    return x, x_dot, theta, theta_dot


def _float32_below(limit: float) -> np.float32:
    """The greatest float32 that is not above `limit`.

    A float32 exceeds this value exactly when it exceeds `limit` itself, compared in
    float64.
    """
    nearest = np.float32(limit)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return nearest if float(nearest) <= limit else below


_WIDTH, _HEIGHT, _FLOOR = 600, 400, 310.0  # of an image, in pixels


def _metre(x_threshold: float) -> float:
    """The pixels of a metre."""
    return _WIDTH / (2.3 * x_threshold)


def _to_pixel(right: float, above: float) -> drawing.Point:
    """The point that is so many pixels right of the centre and above the floor."""
    return _WIDTH / 2 + right, _FLOOR - above


@functools.lru_cache(maxsize=4)
def _draw_track(x_threshold: float) -> drawing.Canvas:
    """Draws the floor and the track, which all images share."""
    canvas, end = drawing.Canvas(_WIDTH, _HEIGHT), x_threshold * _metre(x_threshold)
    canvas.box((0, _FLOOR + 3), _WIDTH, _HEIGHT - _FLOOR - 3, "#f1f0ee")
    canvas.line(_to_pixel(-end, 0), _to_pixel(end, 0), 4, drawing.GREY)
    for side in (-end, end):  # the episode ends here
        canvas.line(_to_pixel(side, -10), _to_pixel(side, 10), 4, drawing.RED)
    canvas.line(_to_pixel(0, -12), _to_pixel(0, -18), 2, drawing.GREY)
    return canvas


def draw_cartpole(
    x: float, theta: float, length: float, x_threshold: float
) -> np.ndarray:
    """Draws the cart on its track, `[400, 600, 3]` uint8; x and y have one scale."""
    canvas, metre = _draw_track(x_threshold).copy(), _metre(x_threshold)

    def to_pixel(position: float, height_above: float) -> drawing.Point:
        return _to_pixel(position * metre, height_above)

    for side in (-22, 22):
        left, top = to_pixel(x, 8)
        canvas.circle((left + side, top), 8, drawing.INK)
        canvas.circle((left + side, top), 3, drawing.GREY)
    left, top = to_pixel(x, 42)
    canvas.box((left - 40, top), 80, 30, drawing.BLUE, radius=6)
    axle = to_pixel(x, 36)
    reach = 2 * length * metre
    tip = (axle[0] + reach * math.sin(theta), axle[1] - reach * math.cos(theta))
    canvas.line(axle, tip, 11, drawing.WOOD)
    canvas.circle(axle, 8, drawing.INK)
    canvas.circle(axle, 3, drawing.PAPER)
    return canvas.pixels()
