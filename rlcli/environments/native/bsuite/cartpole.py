"""Cartpole: bsuite's two tasks of a pole on a cart: keep it up, and swing it up."""

from __future__ import annotations

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
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, Environment, Key, NonNegative, Positive, TimeStep


class CartpoleState(NamedTuple):
    """Where cart and pole are and how fast they move, and the time."""

    physics: Array  # float32[4]: x, ẋ, θ in [−π, π], 0 upright; θ̇
    time: Array  # int32: steps of the episode so far


class Limits(NamedTuple):
    """When an episode ends, and how it begins; numbers, or traced."""

    x_threshold: Array | float  # metres
    max_time: Array | float  # seconds
    angle: float  # around which the pole begins, in radians, …
    init_range: Array | float  # … and how far from it, as from rest in the middle


class StepOutcome(NamedTuple):
    """What is said about a step, but for its time."""

    reward: Array
    terminated: Array  # bool: whether cart or pole end the episode
    upright: Array  # bool


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
) -> Environment:
    """Balances a pole on a cart: 1 for every step until it falls, or the time is up.

    The equations of motion are CartPole-v1's. It terminates, with reward 0, where
    cos θ ≤ height_threshold or |x| ≥ x_threshold, and with the step that goes beyond
    `max_time`. An episode begins with x, ẋ, θ and θ̇ within ±init_range.
    Observation: float32 `[1, 6]`: x and ẋ as shares of x_threshold, sin θ, cos θ, θ̇,
    and the time as a share of max_time. Actions: 0 pushes to the left, 1 not at all, 2
    to the right. Logged: `raw_return`, the reward before wrappers change it. From
    bsuite (Osband et al., 2019, https://arxiv.org/abs/1908.03568).

    Args:
        timescale: seconds from one step to the next.
        max_time: seconds of an episode. Of `timescale` times the steps: bsuite adds it
            up in doubles, which for some other `timescale` ends it a step earlier.
        length: half of the pole's length, in metres.
    """
    cart = Cart(gravity, masscart, masspole, length, timescale)

    def evaluate_step(physics: Array, cosine: Array, action: Array) -> StepOutcome:
        del action  # it costs nothing
        is_good = (cosine > height_threshold) & (jnp.abs(physics[0]) < x_threshold)
        return StepOutcome(is_good.astype(jnp.float32), ~is_good, is_good)

    def info(verdict: StepOutcome) -> dict[str, Array]:
        return {"raw_return": verdict.reward}

    limits = Limits(x_threshold, max_time, 0.0, init_range)
    return _cartpole_task(cart, limits, force_magnitude, evaluate_step, info)


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
) -> Environment:
    """Swings a pole up on a cart: 1 while it stands in the middle, less for moving.

    It stands where cos θ > height_threshold, |θ̇| < theta_dot_threshold and
    |x| < x_reward_threshold; a push costs `move_cost`. The equations of motion are
    CartPole-v1's, and the pole hangs at first: x, ẋ, θ − π and θ̇ are within
    ±init_range. It terminates where |x| > x_threshold, and with the step that goes
    beyond `max_time`.
    Observation: float32 `[1, 8]`: x and ẋ as shares of x_threshold, sin θ, cos θ, θ̇,
    the time as a share of max_time; then 1 where x, and 1 where θ̇, is within its
    threshold for a reward, else −1. Actions: 0 pushes to the left, 1 not at all, 2 to
    the right. Logged: `raw_return`, the reward before wrappers change it; `upright`,
    the steps in which it stood. From bsuite (Osband et al., 2019,
    https://arxiv.org/abs/1908.03568).

    Args:
        timescale: seconds from one step to the next.
        max_time: seconds of an episode. Of `timescale` times the steps: bsuite adds it
            up in doubles, which for some other `timescale` ends it a step earlier.
        length: half of the pole's length, in metres.
    """
    cart = Cart(gravity, masscart, masspole, length, timescale)

    def near(physics: Array) -> tuple[Array, Array]:
        x, _, _, theta_dot = jnp.abs(physics)
        return x < x_reward_threshold, theta_dot < theta_dot_threshold

    def evaluate_step(physics: Array, cosine: Array, action: Array) -> StepOutcome:
        middle, slow = near(physics)
        upright = (cosine > height_threshold) & middle & slow
        reward = upright - jnp.where(action == 1, 0.0, move_cost)
        return StepOutcome(reward, jnp.abs(physics[0]) > x_threshold, upright)

    def info(verdict: StepOutcome) -> dict[str, Array]:
        upright = verdict.upright.astype(jnp.float32)
        return {"raw_return": verdict.reward, "upright": upright}

    def more(physics: Array) -> list[Array]:
        return [jnp.where(flag, 1.0, -1.0) for flag in near(physics)]

    limits = Limits(x_threshold, max_time, math.pi, init_range)
    return _cartpole_task(cart, limits, force_magnitude, evaluate_step, info, more)


def _cartpole_task(
    cart: Cart,
    limits: Limits,
    force: Array | float,
    evaluate_step: Callable[[Array, Array, Array], StepOutcome],
    info: Callable[[StepOutcome], dict[str, Array]],
    more: Callable[[Array], list[Array]] = lambda physics: [],
) -> Environment:
    """A task upon a cart.

    `evaluate_step(physics, cos θ, action)` says what is thought of a step, and
    `more(physics)` what is observed beside what always is.
    """

    def observe(state: CartpoleState, sine: Array, cosine: Array) -> Array:
        x, x_dot, _, theta_dot = state.physics
        position, speed = x / limits.x_threshold, x_dot / limits.x_threshold
        share = state.time * cart.tau / limits.max_time
        features = [
            position,
            speed,
            sine,
            cosine,
            theta_dot,
            share,
            *more(state.physics),
        ]
        return jnp.stack(features)[None]

    def reset(key: Key) -> tuple[CartpoleState, Array]:
        uniform = jax.random.uniform(key, (4,), jnp.float32, -1.0, 1.0)
        x, x_dot, theta, theta_dot = uniform * limits.init_range
        theta = wrap_angle(limits.angle + theta)
        state = CartpoleState(jnp.stack([x, x_dot, theta, theta_dot]), jnp.int32(0))
        return state, observe(state, *sine_and_cosine(theta))

    def step(
        state: CartpoleState, action: Array, noise: tuple[()]
    ) -> tuple[CartpoleState, TimeStep]:
        del noise  # only the beginning is random
        push = jnp.asarray(action - 1, jnp.float32) * force
        x, x_dot, theta, theta_dot = euler_step(cart, state.physics, push)
        physics = jnp.stack([x, x_dot, wrap_angle(theta), theta_dot])
        state = CartpoleState(physics, state.time + 1)
        sine, cosine = sine_and_cosine(physics[2])
        verdict = evaluate_step(physics, cosine, action)
        # Not a sum of small numbers, which would end a step too early.
        terminated = verdict.terminated | (state.time * cart.tau > limits.max_time)
        obs = observe(state, sine, cosine)
        return state, make_timestep(obs, verdict.reward, terminated, info(verdict))

    def render(state: CartpoleState) -> np.ndarray:
        x, _, theta, _ = (float(value) for value in state.physics)
        return draw_cartpole(x, theta, float(cart.length), float(limits.x_threshold))

    size = jax.eval_shape(reset, jax.random.key(0))[1].shape
    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Box(-np.inf, np.inf, size, np.float32),
        action=gymnasium.spaces.Discrete(3),
        render=render,
        draw=lambda key: (),
    )
