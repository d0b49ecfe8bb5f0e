"""Cartpole: the two cart-pole tasks of bsuite, balancing and swing-up."""

import math
from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.native.classic_control.angles import sine_and_cosine, wrap_angle
from rlcli.environments.native.classic_control.cartpole import (
    Cart,
    draw_cartpole,
    euler_step,
)
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, Core, Key, NonNegative, Positive


class CartpoleState(NamedTuple):
    """The position and velocity of the cart and the pole, and the time."""

    physics: Array  # float32[4]: x, ẋ, θ in [−π, π], 0 upright; θ̇
    time: Array  # int32: steps of the episode so far


class Limits(NamedTuple):
    """The limits of an episode and of its initial state; numbers or traced values."""

    x_threshold: Array | float  # metres
    max_time: Array | float  # seconds
    angle: float  # radians: the centre of the pole's initial angle
    init_range: Array | float  # the half-width of all initial values


# Reward, termination without the time limit, and what is logged beside the reward.
StepOutcome = tuple[Array, Array, dict[str, Array]]


@register("environment", "bsuite/Cartpole")
def cartpole(
    *,
    height_threshold: float = 0.8,
    x_threshold: Positive = 3.0,
    timescale: Positive = 0.01,
    max_time: Positive = 10.0,
    init_range: NonNegative = 0.05,
    gravity: float = 9.8,
    masscart: Positive = 1.0,
    masspole: Positive = 0.1,
    length: Positive = 0.5,
    force_magnitude: float = 10.0,
) -> Core:
    """Balances a pole on a cart: reward 1 per step until it falls or time is up.

    The equations of motion are those of CartPole-v1. The episode terminates, with
    reward 0, when cos θ ≤ height_threshold or |x| ≥ x_threshold, and at the step that
    exceeds `max_time`. An episode begins with x, ẋ, θ and θ̇ uniform in ±init_range.
    Observation: float32 `[1, 6]`: x and ẋ divided by x_threshold, sin θ, cos θ, θ̇, and
    the time as a fraction of max_time. Actions: 0 pushes left, 1 does not push, 2
    pushes right. Logged: `raw_return`, the reward before wrappers change it. From
    bsuite (Osband et al., 2019, https://arxiv.org/abs/1908.03568).

    Args:
        timescale: seconds per step.
        max_time: seconds per episode, compared with `timescale` times the number of
            steps. bsuite sums float64 numbers, which for some values of `timescale`
            ends the episode one step earlier.
        length: half of the pole's length, in metres.
    """
    cart = Cart(gravity, masscart, masspole, length, timescale)

    def evaluate_step(physics: Array, cosine: Array, action: Array) -> StepOutcome:
        del action  # actions have no cost
        is_good = (cosine > height_threshold) & (jnp.abs(physics[0]) < x_threshold)
        return is_good.astype(jnp.float32), ~is_good, {}

    limits = Limits(x_threshold, max_time, 0.0, init_range)
    return _cartpole_task(cart, limits, force_magnitude, evaluate_step)


@register("environment", "bsuite/CartpoleSwingup")
def cartpole_swingup(
    *,
    height_threshold: float = 0.5,
    theta_dot_threshold: Positive = 1.0,
    x_reward_threshold: Positive = 1.0,
    move_cost: float = 0.1,
    x_threshold: Positive = 3.0,
    timescale: Positive = 0.01,
    max_time: Positive = 10.0,
    init_range: NonNegative = 0.05,
    gravity: float = 9.8,
    masscart: Positive = 1.0,
    masspole: Positive = 0.1,
    length: Positive = 0.5,
    force_magnitude: float = 10.0,
) -> Core:
    """Swings up a pole on a cart: reward 1 per step while it is upright, minus effort.

    The pole counts as upright when cos θ > height_threshold, |θ̇| < theta_dot_threshold
    and |x| < x_reward_threshold; a push costs `move_cost`. The equations of motion are
    those of CartPole-v1. The pole hangs down at first: x, ẋ, θ − π and θ̇ are uniform
    in ±init_range. The episode terminates when |x| > x_threshold, and at the step that
    exceeds `max_time`.
    Observation: float32 `[1, 8]`: x and ẋ divided by x_threshold, sin θ, cos θ, θ̇, the
    time as a fraction of max_time; then 1 if |x|, and 1 if |θ̇|, is below its reward
    threshold, else −1. Actions: 0 pushes left, 1 does not push, 2 pushes right. Logged:
    `raw_return`, the reward before wrappers change it; `upright`, the number of upright
    steps. From bsuite (Osband et al., 2019, https://arxiv.org/abs/1908.03568).

    Args:
        timescale: seconds per step.
        max_time: seconds per episode, compared with `timescale` times the number of
            steps. bsuite sums float64 numbers, which for some values of `timescale`
            ends the episode one step earlier.
        length: half of the pole's length, in metres.
    """
    cart = Cart(gravity, masscart, masspole, length, timescale)

    def within_thresholds(physics: Array) -> tuple[Array, Array]:
        x, _, _, theta_dot = jnp.abs(physics)
        return x < x_reward_threshold, theta_dot < theta_dot_threshold

    def evaluate_step(physics: Array, cosine: Array, action: Array) -> StepOutcome:
        middle, slow = within_thresholds(physics)
        upright = (cosine > height_threshold) & middle & slow
        reward = upright - jnp.where(action == 1, 0.0, move_cost)
        is_off = jnp.abs(physics[0]) > x_threshold
        return reward, is_off, {"upright": upright.astype(jnp.float32)}

    def extra_features(physics: Array) -> list[Array]:
        return [jnp.where(flag, 1.0, -1.0) for flag in within_thresholds(physics)]

    limits = Limits(x_threshold, max_time, math.pi, init_range)
    return _cartpole_task(cart, limits, force_magnitude, evaluate_step, extra_features)


def _cartpole_task(
    cart: Cart,
    limits: Limits,
    force: Array | float,
    evaluate_step: Callable[[Array, Array, Array], StepOutcome],
    extra_features: Callable[[Array], list[Array]] = lambda physics: [],
) -> Core:
    """Builds a task on the cart-pole dynamics.

    Args:
        evaluate_step: `(physics, cos θ, action)` to the outcome of a step.
        extra_features: `physics` to the task's additional observations.
    """

    def observe(state: CartpoleState, sine: Array, cosine: Array) -> Array:
        x, x_dot, _, theta_dot = state.physics
        position, speed = x / limits.x_threshold, x_dot / limits.x_threshold
        share = state.time * cart.tau / limits.max_time
        features = [position, speed, sine, cosine, theta_dot, share]
        return jnp.stack([*features, *extra_features(state.physics)])[None]

    def begin(key: Key) -> tuple[CartpoleState, Array]:
        uniform = jax.random.uniform(key, (4,), jnp.float32, -1.0, 1.0)
        x, x_dot, theta, theta_dot = uniform * limits.init_range
        theta = wrap_angle(limits.angle + theta)
        state = CartpoleState(jnp.stack([x, x_dot, theta, theta_dot]), jnp.int32(0))
        return state, observe(state, *sine_and_cosine(theta))

    def step(state: CartpoleState, action: Array) -> tuple:
        push = jnp.asarray(action - 1, jnp.float32) * force
        x, x_dot, theta, theta_dot = euler_step(cart, state.physics, push)
        physics = jnp.stack([x, x_dot, wrap_angle(theta), theta_dot])
        state = CartpoleState(physics, state.time + 1)
        sine, cosine = sine_and_cosine(physics[2])
        reward, terminated, info = evaluate_step(physics, cosine, action)
        # A product, not a running sum: rounding errors would end the episode early.
        terminated |= state.time * cart.tau > limits.max_time
        info = {"raw_return": reward, **info}
        return state, observe(state, sine, cosine), reward, terminated, info

    def render(state: CartpoleState) -> np.ndarray:
        x, _, theta, _ = (float(value) for value in state.physics)
        return draw_cartpole(x, theta, float(cart.length), float(limits.x_threshold))

    size = jax.eval_shape(begin, jax.random.key(0))[1].shape
    observation = gymnasium.spaces.Box(-np.inf, np.inf, size, np.float32)
    return native_core(begin, step, None, observation, 3, render=render)
