"""Swimmer, compared with Newton's laws for segments with joint forces."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.control.swimmer import SwimmerState, swimmer

BATCH = 300
# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}
assert_near = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
DEFAULTS = {"mass": 1.0, "length": 1.0, "viscosity": 10.0, "dt": 0.05}


class Newton:
    """Segments as free bodies, for `[batch]` swimmers, in float64.

    Middles `[batch, n, 2]` and angles `[batch, n]`; the forces in the joints and the
    accelerations are unknown. The liquid's drag is summed over points of each segment.
    """

    def __init__(self, n, mass, length, viscosity):
        self.n, self.mass, self.length, self.viscosity = n, mass, length, viscosity

    def from_state(self, state):
        """Middles and angles, and their velocities, of a `SwimmerState`."""
        centre, angles, velocity, speeds = (np.asarray(s, np.float64) for s in state)
        half = self.length / 2
        along = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        across = np.stack([-np.sin(angles), np.cos(angles)], axis=-1)
        middles, velocities = [np.zeros((len(angles), 2))], [np.zeros((len(angles), 2))]
        for i in range(1, self.n):
            middles.append(middles[-1] + half * (along[:, i - 1] + along[:, i]))
            turn = speeds[:, i - 1, None] * across[:, i - 1]
            turn = turn + speeds[:, i, None] * across[:, i]
            velocities.append(velocities[-1] + half * turn)
        middles, velocities = np.stack(middles, axis=1), np.stack(velocities, axis=1)
        middles += (centre - middles.mean(axis=1))[:, None]
        velocities += (velocity - velocities.mean(axis=1))[:, None]
        return middles, angles, velocities, speeds

    def drag(self, angles, velocities, speeds):
        """The liquid's force on each segment and its torque around the middle."""
        across = np.stack([-np.sin(angles), np.cos(angles)], axis=-1)
        force, torque = np.zeros_like(velocities), np.zeros_like(speeds)
        points, weights = np.polynomial.legendre.leggauss(3)
        for point, weight in zip(points, weights, strict=True):
            at, share = point * self.length / 2, weight * self.length / 2
            slip = np.sum(velocities * across, axis=-1) + at * speeds
            push = -self.viscosity * share * slip
            force += push[..., None] * across
            torque += push * at
        return force, torque

    def accelerations(self, state, torques):
        _, angles, velocities, speeds = state
        n, half = self.n, self.length / 2
        cosine, sine = np.cos(angles), np.sin(angles)
        force, torque = self.drag(angles, velocities, speeds)
        # Unknowns: 2n accelerations, n angular ones, 2 forces in each of n − 1 joints.
        size = 3 * n + 2 * (n - 1)
        matrix = np.zeros((len(angles), size, size))
        right_side = np.zeros((len(angles), size))
        for i, axis in itertools.product(range(n), range(2)):
            matrix[:, 2 * i + axis, 2 * i + axis] = self.mass
            right_side[:, 2 * i + axis] = force[:, i, axis]
        for i in range(n):
            matrix[:, 2 * n + i, 2 * n + i] = self.mass * self.length**2 / 12
            right_side[:, 2 * n + i] = torque[:, i]
        for joint in range(n - 1):
            fx = 3 * n + 2 * joint
            fy = fx + 1
            for i, sign in ((joint, 1), (joint + 1, -1)):
                matrix[:, 2 * i, fx] -= sign
                matrix[:, 2 * i + 1, fy] -= sign
                # The arm is half a segment, forward for the first, back for the second.
                matrix[:, 2 * n + i, fy] -= half * cosine[:, i]
                matrix[:, 2 * n + i, fx] += half * sine[:, i]
                right_side[:, 2 * n + i] -= sign * torques[:, joint]
                # The two ends at a joint have the same acceleration.
                matrix[:, fx, 2 * i] = sign
                matrix[:, fy, 2 * i + 1] = sign
                matrix[:, fx, 2 * n + i] = -half * sine[:, i]
                matrix[:, fy, 2 * n + i] = half * cosine[:, i]
                right_side[:, fx] += half * speeds[:, i] ** 2 * cosine[:, i]
                right_side[:, fy] += half * speeds[:, i] ** 2 * sine[:, i]
        solution = np.linalg.solve(matrix, right_side[..., None])[..., 0]
        return solution[:, : 2 * n].reshape(-1, n, 2), solution[:, 2 * n : 3 * n]

    def advance(self, state, torques, dt, substeps=50):
        """The state after `dt`, by many small steps of the midpoint rule."""
        for _ in range(substeps):
            middle = self.euler_step(state, state, torques, dt / substeps / 2)
            state = self.euler_step(state, middle, torques, dt / substeps)
        return state

    def euler_step(self, state, at, torques, dt):
        pushed, turned = self.accelerations(at, torques)
        change = (at[2], at[3], pushed, turned)
        return tuple(s + dt * c for s, c in zip(state, change, strict=True))

    def energy(self, state):
        _, _, velocities, speeds = state
        inertia = self.mass * self.length**2 / 12
        linear = np.sum(self.mass * velocities**2, axis=(1, 2))
        return (linear + np.sum(inertia * speeds**2, axis=1)) / 2

    def momenta(self, state):
        """The linear and angular momentum, around the origin."""
        middles, _, velocities, speeds = state
        cross = (
            middles[..., 0] * velocities[..., 1] - middles[..., 1] * velocities[..., 0]
        )
        spin = self.mass * cross + self.mass * self.length**2 / 12 * speeds
        return self.mass * velocities.sum(axis=1), spin.sum(axis=1)


def states_and_torques(n, seed=0):
    rng = np.random.default_rng(seed)
    state = SwimmerState(
        rng.normal(size=(BATCH, 2)),
        rng.uniform(-np.pi, np.pi, (BATCH, n)),
        rng.normal(size=(BATCH, 2)),
        rng.uniform(-4, 4, (BATCH, n)),
    )
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), state)
    return single, rng.uniform(-6, 6, (BATCH, n - 1)).astype(np.float32)


@functools.cache
def step_of(n):
    """Steps a batch of states; the physics parameters are traced."""

    def step(physics, state, torques):
        return jax.vmap(swimmer(segments=n, **physics).step)(state, torques, ())

    return jax.jit(step, compiler_options=FAST_COMPILE)


def step_batch(n, state, torques, physics):
    return jax.tree.map(np.asarray, step_of(n)(physics, state, torques))


@pytest.mark.parametrize(
    ("n", "changed"),
    [
        (3, {}),
        (3, {"mass": 2.0, "length": 1.4, "viscosity": 4.0, "dt": 0.08}),
        pytest.param(2, {}, marks=pytest.mark.slow),
        pytest.param(5, {"viscosity": 6.0}, marks=pytest.mark.slow),
    ],
)
def test_a_step_follows_newtons_laws(n, changed):
    physics = DEFAULTS | changed
    state, torques = states_and_torques(n)
    after, timestep = step_batch(n, state, torques, physics)
    dt = physics.pop("dt")
    newton = Newton(n, **physics)
    found = newton.advance(newton.from_state(state), np.clip(torques, -5, 5), dt)
    middles, angles, velocities, speeds = found
    assert_near(after.centre, middles.mean(axis=1))
    assert_near(after.velocity, velocities.mean(axis=1))
    assert_near(after.speeds, speeds)
    assert_near(np.cos(after.angles), np.cos(angles))
    assert_near(np.sin(after.angles), np.sin(angles))
    swum = (middles.mean(axis=1) - state.centre)[:, 0] / dt
    assert_near(timestep.reward, swum)
    parts = (np.cos(angles), np.sin(angles), speeds, velocities.mean(axis=1))
    assert_near(timestep.obs, np.concatenate(parts, axis=1))
    assert not np.any(timestep.last)
    assert np.all(np.abs(after.angles) <= np.pi + 1e-6)


@pytest.mark.parametrize("driven", [False, True])
def test_momenta_are_conserved_without_liquid_and_energy_without_torques(driven):
    physics = DEFAULTS | {"viscosity": 0.0}
    state, torques = states_and_torques(3, seed=1)
    after, _ = step_batch(3, state, torques * driven, physics)
    newton = Newton(3, 1.0, 1.0, 0.0)
    before, later = newton.from_state(state), newton.from_state(after)
    for one, other in zip(newton.momenta(before), newton.momenta(later), strict=True):
        assert_near(other, one)
    change = newton.energy(later) / newton.energy(before) - 1
    assert np.all(np.abs(change) < 1e-3) != driven


def test_the_liquid_only_dissipates_energy():
    state, torques = states_and_torques(3, seed=2)
    after, _ = step_batch(3, state, 0 * torques, DEFAULTS)
    newton = Newton(3, 1.0, 1.0, 10.0)
    assert np.all(
        newton.energy(newton.from_state(after))
        < newton.energy(newton.from_state(state))
    )


def test_a_torque_outside_the_box_is_clipped():
    state, torques = states_and_torques(3, seed=3)
    outside = step_batch(3, state, np.sign(torques) * 50, DEFAULTS)
    inside = step_batch(3, state, np.sign(torques) * 5, DEFAULTS)
    jax.tree.map(np.testing.assert_array_equal, outside, inside)


@pytest.mark.slow
def test_a_gait_swims_forward_and_its_mirror_image_backward():

    def travelled(phase):
        core = swimmer()
        state, _ = core.reset(jax.random.key(0))

        def step(state, t):
            wave = jnp.sin(0.1 * t + phase * np.arange(2))
            return core.step(state, 5.0 * wave, ())[0], None

        return jax.lax.scan(step, state, np.arange(400))[0].centre[0]

    travels = jax.jit(jax.vmap(travelled), compiler_options=FAST_COMPILE)
    forward, backward = travels(jnp.array([-2.4, 2.4]))
    assert forward > 5.0
    assert backward < -5.0


def test_episodes_begin_at_rest_and_nearly_straight(is_uniform):
    keys = jax.random.split(jax.random.key(0), 10_000)
    state, obs = jax.jit(jax.vmap(swimmer(bend=0.3).reset))(keys)
    assert is_uniform(state.angles, -0.3, 0.3)
    for still in (state.centre, state.velocity, state.speeds, obs[:, 6:]):
        np.testing.assert_array_equal(still, 0.0)


def test_the_frame_is_centred_on_the_swimmer():
    core = swimmer()
    zero = jnp.zeros(3)

    def frame(x):
        state = SwimmerState(jnp.array([x, 0.0]), zero, jnp.zeros(2), zero)
        return core.render(state).astype(int)

    def blue(image):
        return np.abs(image - [59, 111, 182]).sum(-1) < 30

    here, there = frame(0.0), frame(0.3)
    np.testing.assert_array_equal(blue(here), blue(there))
    columns = np.nonzero(blue(here))[1]
    assert abs(columns.mean() - 320) < 12
    assert abs(np.ptp(columns) - 3 * 90) < 20
    assert np.any(here != there)
