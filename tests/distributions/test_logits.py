"""Functions of logits: the projection onto atoms."""

import jax
import numpy as np
import rlax

from rlcli.distributions import logits
from rlcli.xla import backend


def random_points(n=9, rows=500):
    """Points around and beyond the atoms −2, −1.5 … 3, and their probabilities."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-4, 5, (rows, n)).astype("f4")
    return points, rng.dirichlet(np.ones(n), rows).astype("f4")


ATOMS = np.linspace(-2, 3, 11, dtype=np.float32)


def project(points, probability):
    compiled = jax.jit(lambda *inputs: logits.project_probabilities(*inputs, ATOMS))
    return np.asarray(compiled(points, probability))


def test_the_projection_is_that_of_rlax():
    points, probability = random_points()
    expected = jax.jit(jax.vmap(rlax.categorical_l2_project, (0, 0, None)))(
        points, probability, ATOMS
    )
    found = project(points, probability)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with backend.assume_backend("cuda"):
        elsewhere = project(points, probability)
    np.testing.assert_allclose(elsewhere, expected, atol=1e-6)


def test_points_on_and_beyond_the_atoms_keep_their_mass():
    points = np.array([-np.inf, -2.0, -1.75, 3.0, np.inf], "f4")
    probability = np.array([0.1, 0.2, 0.3, 0.15, 0.25], "f4")
    expected = np.zeros(11)
    expected[:2] = 0.1 + 0.2 + 0.15, 0.15
    expected[-1] = 0.15 + 0.25
    for platform in ("cpu", "cuda"):
        with backend.assume_backend(platform):
            found = project(points, probability)
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_point_that_is_not_a_number_does_not_vanish():
    points, probability = random_points(rows=2)
    points[0, 3] = np.nan
    for platform in ("cpu", "cuda"):
        with backend.assume_backend(platform):
            found = project(points, probability)
        assert np.isnan(found[0]).all()
        assert np.isfinite(found[1]).all()
