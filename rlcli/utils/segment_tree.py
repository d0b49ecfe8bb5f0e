"""Segment trees: reductions over ranges, and weighted sampling, in O(log N).

For custom training loops on the host, with NumPy. The `prioritized` replay has its own
tree on the device. All functions are batched: the number of NumPy calls does not depend
on the number of indices.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

# Scalar functions of Python, and the corresponding NumPy ufuncs.
_UFUNCS: dict[Callable, np.ufunc] = {
    operator.add: np.add,
    operator.mul: np.multiply,
    max: np.maximum,
    min: np.minimum,
}


class SegmentTree:
    """A binary tree of values, whose inner nodes reduce their two children.

    `tree[level]` are the nodes of a level, from the root (level 0) to the leaves (level
    `height` − 1, padded with `init_value` to a power of two). `tree[level, index]` is
    one node. These arrays and `values` are views of the memory of the tree, so they
    reflect later changes. They are read-only, because a write would not update the
    nodes above.

    Args:
        capacity: number of values.
        reducer: an associative function of two floats, such as `operator.add`, `max` or
            any NumPy ufunc. Other Python functions are called for each number.
        init_value: identity of the reducer: 0 for a sum, 1 for a product, −∞ for max, ∞
            for min.
    """

    def __init__(
        self, capacity: int, reducer: Callable[..., Any], init_value: float
    ) -> None:
        if capacity < 1:
            raise ValueError(f"expected a capacity of at least 1, got {capacity}")
        self.capacity = capacity
        self.reducer = reducer
        self.init_value = float(init_value)
        self._reduce = _elementwise(reducer)
        self._depth = (capacity - 1).bit_length()
        self._first_leaf = 2**self._depth
        # Node n has the children 2n and 2n + 1; the root is 1.
        self._nodes = np.full(2 * self._first_leaf, self.init_value, np.float64)

    @property
    def height(self) -> int:
        """The number of levels, ⌈log₂ capacity⌉ + 1."""
        return self._depth + 1

    @property
    def root_value(self) -> float:
        """The reduction of all values: `reduce(reducer, values, init_value)`."""
        return float(self._nodes[1])

    @property
    def values(self) -> np.ndarray:
        """The values at the leaves, `[capacity]`, read-only."""
        return self[-1][: self.capacity]

    def __getitem__(self, lookup: Any) -> Any:
        level, *index = lookup if isinstance(lookup, tuple) else (lookup,)
        level = operator.index(level)
        if not -self.height <= level < self.height:
            raise IndexError(f"expected one of {self.height} levels, got {level}")
        first = 2 ** (level % self.height)
        nodes = self._nodes[first : 2 * first]
        nodes.flags.writeable = False
        return nodes[tuple(index)] if index else nodes

    def __repr__(self) -> str:
        lines = [f"\n  level={level} : {self[level]}" for level in range(self.height)]
        return f"{type(self).__name__}({''.join(lines)})"

    def set_values(self, idx: Any, values: npt.ArrayLike) -> None:
        """Sets the values at indices `[n]`; for repeated indices, the last value wins.

        `idx` is a NumPy index of an array `[capacity]`; `...` means all values.
        """
        indices = np.arange(self.capacity)[idx]
        nodes = self._first_leaf + np.asarray(indices)
        self._nodes[nodes] = values
        for _ in range(self._depth):
            nodes = np.unique(nodes // 2)
            left, right = self._nodes[2 * nodes], self._nodes[2 * nodes + 1]
            self._nodes[nodes] = self._reduce(left, right)

    def partial_reduce(
        self, start: npt.ArrayLike = 0, stop: npt.ArrayLike | None = None
    ) -> Any:
        """`reduce(reducer, values[start:stop], init_value)`, for one range or many.

        Bounds are those of a slice: negative ones count from the end, and an empty
        range gives `init_value`. By default `stop` is the end. Returns a float for int
        bounds, and an array for arrays `[n]`.
        """
        lower = self._node_of(start)
        upper = self._node_of(self.capacity if stop is None else stop)
        lower, upper = np.broadcast_arrays(lower, upper)
        left = np.full(lower.shape, self.init_value)
        right = left.copy()
        # From the leaves to the root: adds each node whose parent exceeds the range.
        for _ in range(self.height):
            takes_left = (lower < upper) & (lower % 2 == 1)
            node = self._nodes[np.where(takes_left, lower, 1)]
            left = np.where(takes_left, self._reduce(left, node), left)
            lower = lower + takes_left
            takes_right = (lower < upper) & (upper % 2 == 1)
            upper = upper - takes_right
            node = self._nodes[np.where(takes_right, upper, 1)]
            right = np.where(takes_right, self._reduce(node, right), right)
            lower, upper = lower // 2, upper // 2
        result = self._reduce(left, right)
        return float(result) if np.ndim(result) == 0 else result

    def _node_of(self, bound: npt.ArrayLike) -> np.ndarray:
        """The leaf of a slice bound; one after the last leaf for the end."""
        bound = np.asarray(bound)
        if bound.dtype.kind not in "iu":
            raise TypeError(f"expected integer bounds, got {bound.dtype}")
        bound = bound.astype(np.int64)
        from_start = np.where(bound < 0, bound + self.capacity, bound)
        return self._first_leaf + np.clip(from_start, 0, self.capacity)


class SumTree(SegmentTree):
    """Sum tree: samples indices with probability p(i) = vᵢ / Σ v, in O(log N).

    Values must not be negative, which is not checked. Memory is O(N).

    Args:
        capacity: number of values.
        random_seed: seed of the samples.
    """

    def __init__(self, capacity: int, random_seed: int | None = None) -> None:
        super().__init__(capacity, np.add, 0.0)
        self.random_seed = random_seed
        self._random = np.random.default_rng(random_seed)

    def inverse_cdf(self, u: npt.ArrayLike) -> Any:
        """The smallest index i with u Σ v < v₀ + … + vᵢ, for u in [0, 1].

        Returns an int array `[n]` for an array, and a NumPy integer for a float. u = 1
        gives the last index with a positive value. Indices with value 0 never result.
        """
        fraction = np.asarray(u, np.float64)
        if fraction.ndim > 1 or not np.all((fraction >= 0) & (fraction <= 1)):
            raise ValueError(f"expected numbers in [0, 1], a scalar or [n], got {u}")
        if not self._nodes[1] > 0:
            raise ValueError("expected a tree with a value above 0, got none")
        target = fraction * self._nodes[1]
        # The sum before a node is accumulated, not subtracted from the target, so that
        # it is exact for integers.
        sum_before = np.zeros(fraction.shape)
        node = np.ones(fraction.shape, np.int64)
        for _ in range(self._depth):
            middle = sum_before + self._nodes[2 * node]
            is_right = (target >= middle) & (self._nodes[2 * node + 1] > 0)
            sum_before = np.where(is_right, middle, sum_before)
            node = 2 * node + is_right
        return (node - self._first_leaf)[()]

    def sample(self, n: int) -> np.ndarray:
        """Samples `n` indices with replacement: ints `[n]`."""
        if n < 1:
            raise ValueError(f"expected a positive number of samples, got {n}")
        return self.inverse_cdf(self._random.random(n))


class MinTree(SegmentTree):
    """A segment tree of minima; values are initially ∞."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.minimum, np.inf)


class MaxTree(SegmentTree):
    """A segment tree of maxima; values are initially −∞."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.maximum, -np.inf)


def _elementwise(reducer: Callable[..., Any]) -> Callable[..., Any]:
    """Vectorizes a function of two floats."""
    if isinstance(reducer, np.ufunc):
        return reducer
    if reducer in _UFUNCS:
        return _UFUNCS[reducer]
    ufunc = np.frompyfunc(reducer, 2, 1)
    return lambda left, right: np.asarray(ufunc(left, right), np.float64)
