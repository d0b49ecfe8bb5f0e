"""Angles, compared with NumPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.classic_control.angles import sine_and_cosine, wrap_angle

ANGLES = np.concatenate(
    [
        np.linspace(-7, 7, 400_001),
        np.linspace(-6000, 6000, 200_001),
        np.arange(-20, 21) * np.pi / 4,
    ]
).astype(np.float32)


@pytest.mark.slow
def test_sine_and_cosine_match_numpy_to_float32_precision():
    exact = ANGLES.astype(np.float64)
    sine, cosine = sine_and_cosine(jnp.asarray(ANGLES))
    np.testing.assert_allclose(sine, np.sin(exact), atol=1.2e-7, rtol=0)
    np.testing.assert_allclose(cosine, np.cos(exact), atol=1.2e-7, rtol=0)
    assert np.max(np.abs(sine)) == np.max(np.abs(cosine)) == 1


def test_small_sines_have_full_relative_precision():
    small = np.logspace(-20, -1, 1000).astype(np.float32)
    sine, _ = sine_and_cosine(jnp.asarray(small))
    np.testing.assert_allclose(sine, np.sin(small.astype(np.float64)), rtol=2e-7)


def test_a_wrapped_angle_is_equivalent_and_within_pi():
    angles = ANGLES[np.abs(ANGLES) < 100]
    found = np.asarray(wrap_angle(jnp.asarray(angles)), np.float64)
    assert np.max(np.abs(found)) <= np.pi + 1e-6
    turns = (angles - found) / (2 * np.pi)
    np.testing.assert_allclose(turns, np.round(turns), atol=2e-6)
