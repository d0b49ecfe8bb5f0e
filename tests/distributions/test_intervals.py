"""Discretized Box, compared with distrax's mixture of uniform distributions."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy.special import log_softmax

from rlcli import distributions

RNG = np.random.default_rng(0)
LOW, HIGH, BINS = np.array([-2.0, 0.0], "f4"), np.array([2.0, 10.0], "f4"), 4
BOX = spaces.Box(LOW, HIGH)
FAMILY = distributions.discretized_box(BOX, BINS)
PARAMETERS = RNG.normal(size=(6, 2 * BINS)).astype("f4")


@pytest.fixture(scope="module")
def compiled_family(compile_family):
    return compile_family(FAMILY)


@jax.jit
def mixture_density(logits, edges, x):
    mixture = distrax.MixtureSameFamily(
        distrax.Categorical(logits),
        distrax.Uniform(jnp.tile(edges[:-1], (6, 1)), jnp.tile(edges[1:], (6, 1))),
    )
    return mixture.log_prob(x)


def test_the_density_is_a_mixture_of_uniform_distributions(compiled_family, rng):
    x = rng.uniform(LOW, HIGH, (6, 2)).astype("f4")
    log_prob = 0
    for i in range(2):
        edges = np.linspace(LOW[i], HIGH[i], BINS + 1, dtype="f4")
        log_prob += mixture_density(
            PARAMETERS[:, i * BINS : (i + 1) * BINS], edges, x[:, i]
        )
    np.testing.assert_allclose(
        compiled_family.log_prob(PARAMETERS, x), log_prob, rtol=1e-4
    )


def test_samples_cover_the_box(compiled_family, is_uniform):
    draws = 40_000
    noise = compiled_family.draw(jax.random.key(0, impl="rbg"), draws)
    uniform = np.zeros((draws, 2 * BINS), "f4")
    x = np.asarray(compiled_family.sample(uniform, noise))
    assert np.all((x >= LOW) & (x <= HIGH))
    assert is_uniform(x, LOW, HIGH)
    # Noise goes into the bin that its share falls into, and never into an empty one.
    certain = np.tile(np.array([-np.inf, 0, -np.inf, -np.inf], "f4"), 2)
    x = np.asarray(compiled_family.sample(np.broadcast_to(certain, (draws, 8)), noise))
    share = (x - LOW) / (HIGH - LOW)
    assert np.all((share >= 0.25) & (share <= 0.5))


def test_bounds_belong_to_the_bins_at_the_ends(compiled_family):
    logs = log_softmax(PARAMETERS.reshape(6, 2, BINS), -1)
    for x, index in [(LOW, 0), (HIGH, -1)]:
        expected = np.sum(logs[..., index], -1) - np.log(1.0) - np.log(2.5)
        actual = compiled_family.log_prob(PARAMETERS, np.broadcast_to(x, (6, 2)))
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_affine_transforms_the_mean_inside_the_box(compiled_family):
    parameters = np.where(np.arange(8) % 4 < 2, 0, -30).astype("f4")  # the lower half
    moved = compiled_family.affine(
        parameters, np.array([0.5, 0.5]), np.array([0.3, 2.0])
    )
    mean = np.array([0.3, 2.0]) + 0.5 * np.asarray(compiled_family.mean(parameters))
    np.testing.assert_allclose(compiled_family.mean(moved), mean, rtol=1e-4)
    np.testing.assert_allclose(compiled_family.mean(parameters), [-1, 2.5], atol=1e-4)


@pytest.mark.parametrize(
    "space", [spaces.Box(0, np.inf, ()), spaces.Box(0, 9, (), np.int32)]
)
def test_unbounded_and_integer_boxes_are_refused(space):
    with pytest.raises(TypeError, match="expected a Box of floats with bounds, got"):
        distributions.discretized_box(space)


def test_one_bin_is_refused():
    with pytest.raises(ValueError, match="expected at least 2 bins, got 1"):
        distributions.discretized_box(BOX, 1)
