"""Segment trees: against `functools.reduce` and `numpy.searchsorted`."""

import functools
import itertools
import math
import operator

import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.utils import MaxTree, MinTree, SegmentTree, SumTree

LEAVES = [13, 7, 11, 17, 19, 5, 3, 23]
CAPACITIES = [1, 2, 3, 7, 8, 9, 14, 31]
REDUCERS = {
    "add": (operator.add, 0.0),
    "mul": (operator.mul, 1.0),
    "max": (max, -math.inf),
    "min": (min, math.inf),
    "ufunc": (np.logaddexp, -math.inf),
    "python": (lambda x, y: math.hypot(x, y), 0.0),
}


@pytest.fixture
def tree():
    tree = SumTree(capacity=8, random_seed=13)
    tree.set_values(..., LEAVES)
    return tree


def test_the_inverse_cdf_equals_a_table(tree):
    begins = [0, 13, 20, 31, 48, 67, 72, 75]
    expected = [sum(u >= begin for begin in begins) - 1 for u in range(98)]
    indices = tree.inverse_cdf(np.arange(99) / 98)
    assert indices.tolist() == [*expected, 7]
    assert [int(tree.inverse_cdf(u / 98)) for u in (0, 12, 13, 74, 75)] == [
        *[0, 0, 1],
        *[6, 7],
    ]
    assert tree.inverse_cdf(1) == 7


@pytest.mark.parametrize("capacity", [1, 3, 5, 14, 100, 1000])
def test_the_inverse_cdf_is_the_smallest_valid_index(
    capacity,
):
    random = np.random.default_rng(capacity)
    values = random.exponential(size=capacity) * (random.random(capacity) < 0.7)
    values[random.integers(capacity)] = 1.0
    tree = SumTree(capacity)
    tree.set_values(..., values)
    shares = np.concatenate([random.random(500), [0.0, 1.0, np.nextafter(1, 0)]])
    indices = tree.inverse_cdf(shares)
    assert indices.dtype.kind == "i"
    assert indices.max() < capacity
    assert np.all(values[indices] > 0)
    sums = np.cumsum(values)
    goals = shares * sums[-1]
    expected = np.searchsorted(sums, goals, side="right")
    apart = np.abs(goals[:, None] - sums).min(axis=1) > 1e-9  # not at a border
    np.testing.assert_array_equal(indices[apart], expected[apart])
    assert np.count_nonzero(apart) > 400


def test_samples_are_proportional_to_the_values_and_never_zeros():
    tree = SumTree(8, random_seed=13)
    values = np.array([0, 7, 0, 17, 19, 5, 3, 0])
    tree.set_values(..., values)
    drawn = np.bincount(tree.sample(n=200_000), minlength=8) / 200_000
    np.testing.assert_allclose(drawn, values / values.sum(), atol=0.004)
    assert drawn[[0, 2, 7]].tolist() == [0, 0, 0]


def test_the_same_seed_gives_the_same_samples():
    trees = [SumTree(8, random_seed=seed) for seed in (1, 1, 2)]
    for tree in trees:
        tree.set_values(..., LEAVES)
    one, same, other = (tree.sample(50).tolist() for tree in trees)
    assert one == same != other


@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_range_reduces_as_functools_reduce_does(name, capacity):
    reducer, unit = REDUCERS[name]
    tree = SegmentTree(capacity, reducer, unit)
    values = np.random.default_rng(0).uniform(0.5, 1.5, capacity)
    tree.set_values(..., values)
    bounds = [*range(-capacity - 1, capacity + 2), None]
    for start, stop in itertools.product(bounds[:-1:3], bounds):
        expected = functools.reduce(reducer, values[start:stop], unit)
        actual = tree.partial_reduce(start, stop)
        assert isinstance(actual, float)
        assert actual == pytest.approx(expected)
    assert tree.root_value == pytest.approx(functools.reduce(reducer, values, unit))


def test_many_ranges_are_reduced_in_one_call(tree):
    starts, stops = np.array([0, 3, 5, 6]), np.array([8, 4, -1, 2])
    assert tree.partial_reduce(starts, stops).tolist() == [98, 17, 8, 0]
    assert tree.partial_reduce(starts).tolist() == [98, 67, 31, 26]
    assert tree.partial_reduce(2, jnp.array([3, 4])).tolist() == [11, 28]


def test_a_reducer_that_is_not_commutative_keeps_the_order():
    def first(x, y):
        return y if math.isnan(x) else x

    tree = SegmentTree(5, first, math.nan)
    tree.set_values(..., [1, 2, 3, 4, 5])
    assert [tree.partial_reduce(start) for start in range(5)] == [1, 2, 3, 4, 5]


def test_min_and_max_trees_are_initially_infinite():
    smallest, largest = MinTree(6), MaxTree(6)
    assert (smallest.root_value, largest.root_value) == (math.inf, -math.inf)
    for tree in (smallest, largest):
        tree.set_values([1, 4], [3.0, -2.0])
    assert (smallest.root_value, largest.root_value) == (-2, 3)
    assert smallest.partial_reduce(0, 4) == 3


def test_values_are_set_by_any_numpy_index(tree):
    tree.set_values(np.array([0, -1]), [1, 2])
    assert tree.values.tolist() == [1, 7, 11, 17, 19, 5, 3, 2]
    tree.set_values(slice(1, 4), 0)
    tree.set_values([5, 5], [100, 6])
    tree.set_values(jnp.array([4]), jnp.array([8.0]))
    assert tree.values.tolist() == [1, 0, 0, 0, 8, 6, 3, 2]
    assert tree.root_value == 20
    tree.set_values(np.arange(8) > 3, 1)
    tree.set_values([], [])
    assert tree.root_value == 5
    with pytest.raises(IndexError):
        tree.set_values([8], [1.0])


def test_nodes_are_indexed_by_level_and_index(tree):
    assert [tree[level].tolist() for level in range(3)] == [
        [98],
        [48, 50],
        [20, 28, 24, 26],
    ]
    assert tree[-1, 2] == tree[3, 2] == 11
    assert tree[1, 0:1].tolist() == [48]
    assert "level=1 : [48. 50.]" in repr(tree)
    for level in (4, -5):
        with pytest.raises(IndexError, match="one of 4 levels"):
            tree[level]


def test_views_reflect_the_tree_and_are_read_only(tree):
    values, level = tree.values, tree[1]
    tree.set_values(0, 0)
    assert values[0] == 0
    assert level.tolist() == [35, 50]
    for view in (values, level):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


@pytest.mark.parametrize(("capacity", "height"), [(1, 1), (2, 2), (8, 4), (14, 5)])
def test_the_height_is_that_of_a_binary_tree(capacity, height):
    tree = SumTree(capacity)
    assert tree.height == height
    assert tree.values.shape == (capacity,)


def test_invalid_arguments_are_refused(tree):
    with pytest.raises(ValueError, match="capacity of at least 1"):
        SumTree(0)
    with pytest.raises(TypeError, match="integer bounds"):
        tree.partial_reduce(0.5)
    with pytest.raises(ValueError, match=r"numbers in \[0, 1\]"):
        tree.inverse_cdf([0.5, 1.1])
    with pytest.raises(ValueError, match="a value above 0"):
        SumTree(3).sample(1)
    with pytest.raises(ValueError, match="positive number of samples"):
        tree.sample(0)
