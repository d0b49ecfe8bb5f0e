"""The device sum tree against NumPy's cumulative sum."""

import jax
import numpy as np
import pytest

from rlcli.replays import priorities

LEAVES = [13, 7, 11, 17, 19, 5, 3, 23]
set_weights, find_leaves = (
    jax.jit(priorities.set_weights),
    jax.jit(priorities.find_leaves),
)


@pytest.fixture(scope="module")
def small():
    numbers = np.array(LEAVES, np.float32)
    return set_weights(priorities.empty_tree(8), np.arange(8), numbers)


def test_masses_map_to_the_leaves_computed_by_hand(small):
    begins = [0, 13, 20, 31, 48, 67, 72, 75]
    assert priorities.total_weight(small) == 98
    np.testing.assert_array_equal(find_leaves(small, np.float32(begins)), np.arange(8))
    ends = np.array([*begins[1:], 98]) - 0.01
    np.testing.assert_array_equal(find_leaves(small, np.float32(ends)), np.arange(8))


def test_masses_beyond_the_total_return_the_last_leaf(small):
    masses = np.float32([98.0, 98.1, 1e9, 0.0, 13.0, 20.0, 31.0, 48.0])
    np.testing.assert_array_equal(find_leaves(small, masses), [7, 7, 7, 0, 1, 2, 3, 4])


@pytest.mark.parametrize("capacity", [1, 2, 16, 17, 300])
def test_find_leaves_equals_a_cumulative_sum_after_many_changes(capacity):
    rng = np.random.default_rng(capacity)
    tree, weights = priorities.empty_tree(capacity), np.zeros(capacity, np.float32)
    for _ in range(30):
        index = rng.integers(capacity, size=24)
        # Integers, so that sums are exact; a third of them zero.
        new = np.maximum(rng.integers(-4, 9, size=24), 0).astype("f4")
        tree = set_weights(tree, index, new)
        weights[index] = 0
        np.maximum.at(weights, index, new)
    leaves = jax.device_get(priorities.leaf_weights(tree))
    np.testing.assert_array_equal(leaves[:capacity], weights)
    assert not np.any(leaves[capacity:])
    until = np.cumsum(weights)
    assert priorities.total_weight(tree) == until[-1] > 0
    mass = rng.random(2_000).astype("f4") * until[-1]
    index = find_leaves(tree, mass)
    np.testing.assert_array_equal(index, np.searchsorted(until, mass, side="right"))
    assert np.all(weights[np.asarray(index)] > 0)
    build_tree = jax.jit(priorities.build_tree)
    again = build_tree(priorities.empty_tree(capacity), weights)
    for old, new in zip(tree, again, strict=True):
        np.testing.assert_array_equal(old, new)


def test_sums_do_not_drift():
    rng = np.random.default_rng(0)
    tree = priorities.empty_tree(300)
    index, weight = rng.integers(300, size=(2_000, 8)), rng.random((2_000, 8))
    change = jax.jit(
        lambda tree: jax.lax.scan(
            lambda t, new: (priorities.set_weights(t, *new), ()),
            tree,
            (index, 10.0 ** (8 * weight - 4).astype("f4")),
        )[0]
    )
    tree = change(tree)
    leaves = np.asarray(priorities.leaf_weights(tree), np.float64)
    np.testing.assert_allclose(priorities.total_weight(tree), leaves.sum(), rtol=1e-6)


def test_leaves_are_sampled_in_proportion_to_their_weights(small, as_likely):
    share = jax.random.uniform(jax.random.key(0), (50_000,))
    counts = np.bincount(find_leaves(small, share * 98), minlength=8)
    assert as_likely(counts, np.array(LEAVES) / 98)


def test_an_empty_tree_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        priorities.empty_tree(0)
