"""Selection of one entry per row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli.xla.indexing import is_largest, select_index

pytestmark = pytest.mark.xla


@pytest.mark.parametrize("entries", quick_first([1, 65, 5, 64, 200], quick=2))
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_values_and_gradients_equal_those_of_indexing(entries, axis):
    rng = np.random.default_rng(entries)
    rows = np.moveaxis(rng.normal(size=(3, 4, entries)).astype("f4"), -1, axis)
    rest = tuple(np.delete(rows.shape, axis))
    index = rng.integers(0, entries, rest)
    expected = np.take_along_axis(rows, np.expand_dims(index, axis), axis).squeeze(axis)
    factor = rng.normal(size=rest).astype("f4")

    @jax.jit
    def value_and_slope(rows):
        value, pull_back = jax.vjp(lambda rows: select_index(rows, index, axis), rows)
        return value, *pull_back(factor)

    value, slope = value_and_slope(rows)
    np.testing.assert_array_equal(value, expected)
    there = np.zeros_like(rows)
    np.put_along_axis(
        there, np.expand_dims(index, axis), np.expand_dims(factor, axis), axis
    )
    np.testing.assert_array_equal(slope, there)


@pytest.mark.parametrize("entries", [3, 100])
def test_other_entries_may_be_infinite_or_nan(entries):
    rows = np.full((2, entries), -np.inf, np.float32)
    rows[:, 1:3] = 7, np.nan
    selected = jax.jit(select_index)(rows, np.array([1, 0]))
    np.testing.assert_array_equal(selected, [7, -np.inf])


def test_an_index_broadcasts_over_rows():
    rows = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    selected = jax.jit(select_index)(rows, np.array([3, 0, 1]))
    np.testing.assert_array_equal(selected, rows[:, [0, 1, 2], [3, 0, 1]])


def test_at_least_one_entry_is_the_largest_and_equal_ones_are_too():
    """Also where XLA computes the entries twice, in two kernels that round apart."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 2_000, 5)).astype("f4")

    @jax.jit
    def mark(left, right):
        mean = jnp.mean(left, axis=-1, keepdims=True)
        return is_largest(left * right - mean + 0.3 * left)

    assert np.asarray(mark(left, right)).any(axis=-1).all()
    found = is_largest(jnp.array([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0], [-1e9, 5, -1e9]]))
    expected = [[False, True, True], [True, False, False], [False, True, False]]
    np.testing.assert_array_equal(found, expected)
