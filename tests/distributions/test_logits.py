"""Functions of logits: the projection onto atoms."""

import jax
import jax.numpy as jnp
import numpy as np
import rlax

from rlcli.distributions import logits
from rlcli.xla import backend


def random_points(n=9, rows=500):
    """Points around and beyond the atoms −2, −1.5 … 3, and their probabilities."""
    keys = jax.random.split(jax.random.key(0))
    points = jax.random.uniform(keys[0], (rows, n), minval=-4.0, maxval=5.0)
    return points, jax.nn.softmax(jax.random.normal(keys[1], (rows, n)))


ATOMS = np.linspace(-2, 3, 11, dtype=np.float32)


def test_the_projection_is_that_of_rlax():
    points, probability = random_points()
    expected = jax.vmap(rlax.categorical_l2_project, (0, 0, None))(
        points, probability, ATOMS
    )
    found = logits.project_probabilities(points, probability, ATOMS)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with backend.assume_backend("cuda"):
        elsewhere = logits.project_probabilities(points, probability, ATOMS)
    np.testing.assert_array_equal(elsewhere, expected)


def test_points_on_and_beyond_the_atoms_keep_their_mass():
    points = jnp.array([-jnp.inf, -2.0, -1.75, 3.0, jnp.inf])
    probability = jnp.array([0.1, 0.2, 0.3, 0.15, 0.25])
    expected = np.zeros(11)
    expected[:2] = 0.1 + 0.2 + 0.15, 0.15
    expected[-1] = 0.15 + 0.25
    found = logits.project_probabilities(points, probability, ATOMS)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_point_that_is_not_a_number_does_not_vanish():
    points, probability = random_points(rows=2)
    found = logits.project_probabilities(
        points.at[0, 3].set(jnp.nan), probability, ATOMS
    )
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
