import itertools

import jax
import numpy as np
import pytest

from rlcli.xla.random_bits import permutation

KEY = jax.random.key(3)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 1_000, 2**16, 2**16 + 1])
def test_every_index_occurs_once(size):
    order = np.asarray(jax.jit(permutation, static_argnums=1)(KEY, size))
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("size", [3, 4])
def test_every_order_is_equally_likely(size, as_likely):
    permute = jax.jit(jax.vmap(lambda key: permutation(key, size)))
    draws = permute(jax.random.split(KEY, 24_000))
    orders, counts = np.unique(np.asarray(draws), axis=0, return_counts=True)
    assert [*map(tuple, orders)] == [*itertools.permutations(range(size))]
    assert as_likely(counts, np.full(len(counts), 1 / len(counts)))


@pytest.mark.slow
def test_every_index_is_equally_likely_at_every_position_of_many(as_likely):
    draws = jax.vmap(lambda key: permutation(key, 600))(jax.random.split(KEY, 6_000))
    for position in (0, 1, 299, 599):
        counts = np.bincount(np.asarray(draws)[:, position], minlength=600)
        assert as_likely(counts, np.full(600, 1 / 600))


def test_an_order_depends_on_its_key_only():
    def permute(key):
        return permutation(key, 100)

    keys = jax.random.split(KEY, 3)
    batched = jax.jit(jax.vmap(permute))(keys)
    single = [jax.jit(permute)(key) for key in keys]
    np.testing.assert_array_equal(batched, single)
    assert len(np.unique(batched, axis=0)) == 3
