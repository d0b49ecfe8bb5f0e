"""Selection of one entry per row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.xla.indexing import select_index


@pytest.mark.parametrize("entries", [1, 5, 64, 65, 200])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_values_and_gradients_equal_those_of_indexing(entries, axis):
    rng = np.random.default_rng(entries)
    rows = np.moveaxis(rng.normal(size=(3, 4, entries)).astype("f4"), -1, axis)
    rest = tuple(np.delete(rows.shape, axis))
    index = rng.integers(0, entries, rest)
    expected = np.take_along_axis(rows, np.expand_dims(index, axis), axis).squeeze(axis)
    np.testing.assert_array_equal(
        select_index(jnp.asarray(rows), index, axis), expected
    )
    factor = rng.normal(size=rest).astype("f4")
    slope = jax.grad(lambda rows: jnp.sum(factor * select_index(rows, index, axis)))(
        rows
    )
    there = np.zeros_like(rows)
    np.put_along_axis(
        there, np.expand_dims(index, axis), np.expand_dims(factor, axis), axis
    )
    np.testing.assert_array_equal(slope, there)


@pytest.mark.parametrize("entries", [3, 100])
def test_other_entries_may_be_infinite_or_nan(entries):
    rows = jnp.full((2, entries), -jnp.inf).at[:, 1].set(7).at[:, 2].set(jnp.nan)
    np.testing.assert_array_equal(select_index(rows, jnp.array([1, 0])), [7, -np.inf])


def test_an_index_broadcasts_over_rows():
    rows = jnp.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(
        select_index(rows, jnp.array([3, 0, 1])), rows[:, [0, 1, 2], [3, 0, 1]]
    )
