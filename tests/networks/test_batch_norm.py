"""Batch renormalization, against its equations in NumPy."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.networks.batch_norm import BatchRenorm
from rlcli.xla.data_axis import AXIS

ROWS, SIZE, WARMUP, EPSILON = 8, 3, 100_000, 1e-3
RNG = np.random.default_rng(0)
X = (5 + 3 * RNG.normal(size=(ROWS, SIZE))).astype("f4")
PARAMS = {"batch_norm": {"scale": np.array([1, 2, 3.0]), "offset": np.arange(3.0)}}
MEAN, VARIANCE = np.array([4, -9, 6.0]), np.array([9, 0.1, 200.0])


@functools.cache
def layer(learns):
    transformed = hk.transform_with_state(lambda x: BatchRenorm(learns=learns)(x))
    return hk.without_apply_rng(transformed)


@functools.cache  # one program instead of one per operation
def compile_layer(learns):
    return jax.jit(layer(learns).apply)


def state(count=0):
    mean, variance = MEAN.astype("f4"), VARIANCE.astype("f4")
    numbers = {"mean": mean, "variance": variance, "count": np.int32(count)}
    return {"batch_norm": numbers}


def normalized(x, count):
    """The outputs of learning, with the clipped corrections after the warm-up."""
    mean, deviation = x.mean(axis=0), np.sqrt(x.var(axis=0) + EPSILON)
    ratio, shift = 1.0, 0.0
    if count >= WARMUP:
        running = np.sqrt(VARIANCE + EPSILON)
        ratio = np.clip(deviation / running, 1 / 3, 3)
        shift = np.clip((mean - MEAN) / running, -5, 5)
    scale, offset = PARAMS["batch_norm"]["scale"], PARAMS["batch_norm"]["offset"]
    return ((x - mean) / deviation * ratio + shift) * scale + offset


def test_initial_statistics_are_those_of_a_standard_normal_distribution():
    _, initial = jax.jit(layer(False).init)(jax.random.key(0), X)
    for name, value in {"mean": 0, "variance": 1, "count": 0}.items():
        np.testing.assert_array_equal(initial["batch_norm"][name], value)


def test_outside_of_losses_an_outlier_is_clipped_to_100_deviations():
    outlier = np.array([[1e6, -1e6, 6.0]], "f4")
    outputs, _ = compile_layer(False)(PARAMS, state(), outlier)
    scale, offset = PARAMS["batch_norm"]["scale"], PARAMS["batch_norm"]["offset"]
    np.testing.assert_allclose(outputs, [np.array([100, -100, 0]) * scale + offset])


def test_outside_of_losses_running_statistics_normalize_and_stay():
    outputs, after = compile_layer(False)(PARAMS, state(), X)
    scale, offset = PARAMS["batch_norm"]["scale"], PARAMS["batch_norm"]["offset"]
    expected = (X - MEAN) / np.sqrt(VARIANCE + EPSILON) * scale + offset
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, after, state())


@pytest.mark.parametrize("count", [0, WARMUP - 1, WARMUP])
def test_in_losses_the_batch_normalizes_and_moves_the_statistics(count):
    outputs, after = compile_layer(True)(PARAMS, state(count), X)
    np.testing.assert_allclose(outputs, normalized(X, count), rtol=1e-4, atol=1e-4)
    expected = {
        "mean": 0.99 * MEAN + 0.01 * X.mean(axis=0),
        "variance": 0.99 * VARIANCE + 0.01 * X.var(axis=0),
        "count": min(count + 1, WARMUP),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(after["batch_norm"][name], value, rtol=1e-5)


def test_corrections_and_statistics_have_no_gradient():
    """∂y/∂x is that of (x − μ_B) / σ_B, times the ratio as a constant."""
    weights = np.random.default_rng(1).normal(size=(ROWS, SIZE))

    @jax.jit
    @jax.grad
    def gradient(x, statistics):
        outputs, after = layer(True).apply(PARAMS, statistics, x)
        assert after["batch_norm"]["mean"].shape == (SIZE,)
        return jnp.sum(weights * outputs) + jnp.sum(after["batch_norm"]["mean"])

    plain, corrected = (np.asarray(gradient(X, state(count))) for count in (0, WARMUP))
    ratio = np.clip(np.sqrt((X.var(axis=0) + EPSILON) / (VARIANCE + EPSILON)), 1 / 3, 3)
    np.testing.assert_allclose(corrected, plain * ratio, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("count", [0, WARMUP])
def test_the_batch_is_that_of_all_devices(count):
    @jax.jit
    def learn_on_devices(statistics, x):
        def learn(x):
            return layer(True).apply(PARAMS, statistics, x)

        return jax.vmap(learn, axis_name=AXIS)(x)

    halves = X.reshape(2, ROWS // 2, SIZE)
    outputs, after = learn_on_devices(state(count), halves)
    expected, whole = compile_layer(True)(PARAMS, state(count), X)
    np.testing.assert_allclose(
        outputs.reshape(ROWS, SIZE), expected, rtol=1e-4, atol=1e-5
    )
    for leaf, one in zip(jax.tree.leaves(after), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(leaf, np.stack([one, one]), rtol=1e-5)
