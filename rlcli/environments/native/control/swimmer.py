"""Swimmer: a chain of segments that swims through a viscous liquid by bending."""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt

from rlcli.environments import drawing
from rlcli.environments.native.classic_control.angles import sine_and_cosine, wrap_angle
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key, NonNegative, Positive, Structural
from rlcli.xla.fusion_barrier import fusion_barrier

SUBSTEPS = 2  # fourth-order Runge-Kutta steps per environment step
METRE = 90  # pixels


class SwimmerState(NamedTuple):
    """The position and velocity of the swimmer; within a step, tuples of scalars."""

    centre: ArrayTree  # float32 [2]: of mass, x and y, in metres
    angles: ArrayTree  # float32 [segments]: relative to the x axis, in [−π, π]
    velocity: ArrayTree  # float32 [2]: of the centre, metres per second
    speeds: ArrayTree  # float32 [segments]: radians per second


class Body(NamedTuple):
    """The parameters of the motion of `n` identical segments."""

    mass: Array | float
    length: Array | float
    viscosity: Array | float
    # The middle of segment i is at `length` Σⱼ levers[i, j] (cos θⱼ, sin θⱼ) from the
    # centre of mass.
    levers: np.ndarray


@register("environment", "Swimmer-v0", time_limit=200)
def swimmer(
    *,
    segments: Annotated[int, Ge(2)] = 3,
    mass: Positive = 1.0,
    length: Positive = 1.0,
    viscosity: NonNegative = 10.0,
    max_torque: Annotated[Structural, Gt(0.0)] = 5.0,
    bend: NonNegative = 0.1,
    dt: Positive = 0.05,
) -> Core:
    """Swims along the x axis by bending its joints: the reward is the velocity along x.

        on segment i with middle Gᵢ and normal nᵢ = (−sin θᵢ, cos θᵢ) act
        the force −k l (Ġᵢ · nᵢ) nᵢ and the torque −k l³ θ̇ᵢ / 12 of the liquid,
        and the torques of its joints: uᵢ on segment i + 1, and −uᵢ on segment i
        reward = (x′ − x) / dt      x: the centre of mass

    Observation: float32 `[3 · segments + 2]`: cos θ, sin θ, θ̇ of every segment, and
    the velocity of the centre of mass. Action: float32 `[segments − 1]`, the torques;
    an action outside the bounds is clipped. An episode begins at rest, nearly straight
    along the x axis, and never terminates. From (Coulom, 2002,
    https://theses.hal.science/tel-00003985), integrated with two Runge-Kutta steps per
    step; very small, light or viscous swimmers need a smaller `dt`.

    Args:
        segments: the number of segments.
        mass: the mass of a segment, in kilograms.
        length: the length of a segment, in metres.
        viscosity: k, the viscosity of the liquid.
        max_torque: the maximum torque of a joint, in newton metres.
        bend: the half-width of the uniform initial angles, in radians.
        dt: seconds per step.
    """
    body = Body(mass, length, viscosity, _levers(segments))
    high = np.full(3 * segments + 2, np.inf, np.float32)
    high[: 2 * segments] = 1.0

    def observe(state: SwimmerState) -> Array:
        sine, cosine = sine_and_cosine(state.angles)
        return jnp.concatenate([cosine, sine, state.speeds, state.velocity])

    def begin(key: Key) -> SwimmerState:
        angles = bend * jax.random.uniform(key, (segments,), minval=-1.0)
        return SwimmerState(jnp.zeros(2), angles, jnp.zeros(2), jnp.zeros(segments))

    def step(state: SwimmerState, action: Array) -> tuple:
        torque = jnp.clip(action, -max_torque, max_torque)
        end = jnp.zeros(1)
        turning = jnp.concatenate([end, torque]) - jnp.concatenate([torque, end])

        def advance(_: Array, tuples: SwimmerState) -> SwimmerState:
            return _runge_kutta_step(body, tuples, tuple(turning), dt / SUBSTEPS)

        start = SwimmerState._make(tuple(part) for part in state)
        tuples = jax.lax.fori_loop(0, SUBSTEPS, advance, start)
        next_state = SwimmerState(*(jnp.stack(part) for part in tuples))
        reward = (next_state.centre[0] - state.centre[0]) / dt
        next_state = next_state._replace(angles=wrap_angle(next_state.angles))
        return next_state, reward, jnp.asarray(False)

    def render(state: SwimmerState) -> np.ndarray:
        pose = np.asarray(state.centre), np.asarray(state.angles)
        return _draw(*pose, body._replace(length=float(length)))

    observation = gymnasium.spaces.Box(-high, high, dtype=np.float32)
    action = gymnasium.spaces.Box(-max_torque, max_torque, (segments - 1,), np.float32)
    return native_core(begin, step, observe, observation, action, render=render)


def _levers(segments: int) -> np.ndarray:
    """The coefficients of each segment's direction in the middles of all segments."""
    from_head = np.tril(np.ones((segments, segments)), -1) + np.eye(segments) / 2
    return (from_head - from_head.mean(axis=0)).astype(np.float32)


# From here on, the fields of a state are tuples of scalars: XLA computes each scalar
# for the whole batch. With arrays it would loop over their few entries every time.
def _runge_kutta_step(
    body: Body, state: SwimmerState, turning: Sequence[Array], dt: Array | float
) -> SwimmerState:
    """The state after `dt`, by one Runge-Kutta step."""
    leaves, structure = jax.tree.flatten(state)
    numbers = [body.mass, body.length, body.viscosity, *turning]
    numbers = [jnp.asarray(number, jnp.float32) for number in numbers]

    def change(*numbers: Array) -> tuple[Array, ...]:
        state = structure.unflatten(numbers[: len(leaves)])
        mass, length, viscosity, *torques = numbers[len(leaves) :]
        traced_body = Body(mass, length, viscosity, body.levers)
        return tuple(jax.tree.leaves(_state_derivative(traced_body, state, torques)))

    def advance_state(rates: Sequence[Array], share: float) -> list[Array]:
        return [s + share * dt * c for s, c in zip(leaves, rates, strict=True)]

    # Without the barrier, XLA would recompute each derivative for all of its uses.
    derivative = fusion_barrier(change)
    first = derivative(*leaves, *numbers)
    second = derivative(*advance_state(first, 0.5), *numbers)
    third = derivative(*advance_state(second, 0.5), *numbers)
    fourth = derivative(*advance_state(third, 1.0), *numbers)
    return structure.unflatten(
        s + dt / 6 * (a + 2 * b + 2 * c + d)
        for s, a, b, c, d in zip(leaves, first, second, third, fourth, strict=True)
    )


def _state_derivative(
    body: Body, state: SwimmerState, turning: Sequence[Array]
) -> SwimmerState:
    """The time derivative of each field of a state, from Lagrange's equations.

    The kinetic energy is that of the centre of mass plus, with S = leversᵀ levers,
    ½ m l² Σᵢⱼ (Sᵢⱼ cos(θᵢ − θⱼ) + δᵢⱼ / 12) θ̇ᵢ θ̇ⱼ.
    """
    mass, length, viscosity, levers = body
    unit, coupling, size = mass * length**2, (levers.T @ levers).tolist(), len(levers)
    lever = levers.tolist()
    rotations = [sine_and_cosine(angle) for angle in state.angles]
    along = [[ci * cj + si * sj for sj, cj in rotations] for si, ci in rotations]
    across = [[si * cj - ci * sj for sj, cj in rotations] for si, ci in rotations]
    indices = range(size)

    drag = []  # on each segment, along nᵢ
    for i, (sine, cosine) in enumerate(rotations):
        slip = (
            sum(lever[i][j] * along[i][j] * state.speeds[j] for j in indices) * length
        )
        slip += state.velocity[1] * cosine - state.velocity[0] * sine
        drag.append(-viscosity * length * slip)
    torque = []
    for i in indices:
        centrifugal = sum(
            coupling[i][j] * across[i][j] * state.speeds[j] ** 2 for j in indices
        )
        drag_torque = sum(lever[j][i] * along[j][i] * drag[j] for j in indices) * length
        damping = viscosity * length**3 / 12 * state.speeds[i]
        torque.append(turning[i] - damping + drag_torque - unit * centrifugal)
    inertia = [
        [unit * (coupling[i][j] * along[i][j] + (i == j) / 12) for j in indices]
        for i in indices
    ]
    forward = -sum(drag[i] * rotations[i][0] for i in indices) / (size * mass)
    sideways = sum(drag[i] * rotations[i][1] for i in indices) / (size * mass)
    acceleration, angular_acceleration = (forward, sideways), _solve(inertia, torque)
    return SwimmerState._make(
        (state.velocity, state.speeds, acceleration, angular_acceleration)
    )


def _solve(
    matrix: Sequence[Sequence[Array]], vector: Sequence[Array]
) -> tuple[Array, ...]:
    """Solves `matrix` x = `vector` by elimination; positive matrices need no pivoting.

    It is unrolled because a LAPACK call costs more than the rest for so small a matrix.
    """
    rows = [[*row, entry] for row, entry in zip(matrix, vector, strict=True)]
    for i, pivot in enumerate(rows):
        pivot[:] = [entry / pivot[i] for entry in pivot]
        for row in rows[:i] + rows[i + 1 :]:
            factor = row[i]
            row[:] = [old - factor * new for old, new in zip(row, pivot, strict=True)]
    return tuple(row[-1] for row in rows)


def _draw(centre: np.ndarray, angles: np.ndarray, body: Body) -> np.ndarray:
    """Draws the swimmer from above, `[360, 640, 3]` uint8, centred on it."""
    canvas = drawing.Canvas(640, 360, "#e3eef4")
    scale = METRE * min(1.0, 6 / (len(angles) * body.length))

    def pixel(x: float, y: float) -> drawing.Point:
        return 320 + scale * (x - centre[0]), 180 - scale * (y - centre[1])

    reach = 360 / scale
    for metre in range(math.floor(centre[0] - reach), math.ceil(centre[0] + reach) + 1):
        x, _ = pixel(metre, 0)
        canvas.line((x, 0), (x, 360), 3 if metre % 5 == 0 else 1, "#c5d8e2")
        if metre % 5 == 0:
            canvas.text((x + 6, 348), f"{metre} m", 13, anchor="lm")
    for metre in range(math.floor(centre[1] - reach), math.ceil(centre[1] + reach) + 1):
        _, y = pixel(0, metre)
        canvas.line((0, y), (640, y), 1, "#c5d8e2")
    arms = body.length * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    middles = centre + body.levers @ arms
    starts = [pixel(*point) for point in middles - arms / 2]
    ends = [pixel(*point) for point in middles + arms / 2]
    for start, end in zip(starts, ends, strict=True):
        canvas.line(start, end, 16, drawing.BLUE)
    for joint in ends[:-1]:
        canvas.circle(joint, 4, drawing.PAPER)
    canvas.circle(ends[-1], 9, drawing.RED)
    return canvas.pixels()
