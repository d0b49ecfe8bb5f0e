"""Fractions: midpoints, sorted samples, cosines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rlcli.networks.fractions import (
    quantile_cos_embedding,
    quantiles,
    quantiles_uniform,
)


def test_quantiles_are_the_mid_points_of_equal_parts():
    np.testing.assert_allclose(quantiles(2, 4), [[0.125, 0.375, 0.625, 0.875]] * 2)
    actual = np.asarray(quantiles(3))
    assert actual.shape == (3, 200)
    np.testing.assert_allclose(actual.mean(), 0.5, rtol=1e-6)


def test_uniform_quantiles_are_sorted_in_the_unit_interval_and_uniform():
    sample = jax.jit(quantiles_uniform, static_argnums=(1, 2))
    actual = np.asarray(sample(jax.random.key(0), 2_000, 8))
    assert actual.shape == (2_000, 8)
    assert np.all(np.diff(actual) >= 0)
    assert 0 <= actual.min() <= actual.max() <= 1
    # the i-th smallest of n from U(0, 1) is Beta(i, n + 1 − i)
    for i, column in enumerate(actual.T, start=1):
        assert stats.kstest(column, stats.beta(i, 9 - i).cdf).pvalue > 0.001
    default = jax.eval_shape(lambda key: quantiles_uniform(key, 5), jax.random.key(0))
    assert default.shape == (5, 32)
    other = np.asarray(sample(jax.random.key(1), 2_000, 8))
    assert not np.array_equal(actual, other)


def test_the_first_cosine_is_the_constant_one():
    tau = np.array([0, 0.25, 0.5, 1], "f4")
    r = np.sqrt(0.5)
    table = [[1, 1, 1, 1], [1, r, 0, -r], [1, 0, -1, 0], [1, -1, 1, -1]]
    embed = jax.jit(quantile_cos_embedding, static_argnums=1)
    np.testing.assert_allclose(embed(tau, 4), table, atol=1e-6)
    assert jax.eval_shape(quantile_cos_embedding, tau).shape == (4, 64)
    assert embed.eval_shape(np.zeros((3, 5), "f4"), 7).shape == (3, 5, 7)


@pytest.mark.xla
def test_cosines_are_as_accurate_as_those_of_jax():
    tau = np.linspace(0, 1, 10_001, dtype=np.float32)
    exact = np.cos(np.pi * np.arange(64) * tau[:, None].astype(np.float64))
    error, others = (
        np.abs(np.asarray(found) - exact).max()
        for found in (
            jax.jit(quantile_cos_embedding)(tau),
            jax.jit(lambda tau: jnp.cos(jnp.pi * jnp.arange(64) * tau[:, None]))(tau),
        )
    )
    assert error <= others
