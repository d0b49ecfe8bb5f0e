"""Segment trees: reductions over ranges, and weighted sampling, in O(log N).

NumPy, for loops of one's own on the host; the `prioritized` replay has its own on the
device. All is batched: thousands of indices cost about as many steps as one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

# Of what Python calls scalar functions, those that NumPy has for whole arrays.
_UFUNCS: dict[Callable, np.ufunc] = {
    operator.add: np.add,
    operator.mul: np.multiply,
    max: np.maximum,
    min: np.minimum,
}


class SegmentTree:
    """A binary tree whose leaves are values and whose nodes reduce their two children.

    `tree[level]` are the nodes of a level, root first (level 0), leaves last (level
    `height` − 1, padded by `init_value` to a power of two); `tree[level, index]` is one
    of them. These and `values` are views of the tree's own memory, so they follow it;
    they are read-only: writing to them would leave the nodes above as they were.

    Args:
        capacity: how many values it holds.
        reducer: an associative function of two floats, such as `operator.add`, `max`
            or any NumPy ufunc; other Python functions are called number by number.
        init_value: its unit: 0 for a sum, 1 for a product, −∞ for max, ∞ for min.
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
        """How many levels there are, ⌈log₂ capacity⌉ + 1."""
        return self._depth + 1

    @property
    def root_value(self) -> float:
        """All values reduced: `reduce(reducer, values, init_value)`."""
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
        """Sets the values at indices `[n]`; where one comes twice, the last one stays.

        `idx` is whatever NumPy indexes `[capacity]` values with; `...` means all.
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
        """`reduce(reducer, values[start:stop], init_value)`, of many ranges at once.

        Bounds mean what they mean in a slice: negative ones count from the end, and an
        empty range gives `init_value`. A left-out `stop` is the end. A float for ints,
        an array for arrays `[n]`.
        """
        lower = self._node_of(start)
        upper = self._node_of(self.capacity if stop is None else stop)
        lower, upper = np.broadcast_arrays(lower, upper)
        left = np.full(lower.shape, self.init_value)
        right = left.copy()
        # From the leaves up: a node that sticks out of its parent's range is taken.
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
        """The leaf that a slice's bound means; one behind the last for the end."""
        bound = np.asarray(bound)
        if bound.dtype.kind not in "iu":
            raise TypeError(f"expected integer bounds, got {bound.dtype}")
        bound = bound.astype(np.int64)
        from_start = np.where(bound < 0, bound + self.capacity, bound)
        return self._first_leaf + np.clip(from_start, 0, self.capacity)


class SumTree(SegmentTree):
    """Draws indices in proportion to their values, p(i) = vᵢ / Σ v, in O(log N).

    Values are presumed not to be negative: that is not checked. Memory is O(N).

    Args:
        capacity: how many values it holds.
        random_seed: the same one gives the same samples.
    """

    def __init__(self, capacity: int, random_seed: int | None = None) -> None:
        super().__init__(capacity, np.add, 0.0)
        self.random_seed = random_seed
        self._random = np.random.default_rng(random_seed)

    def inverse_cdf(self, u: npt.ArrayLike) -> Any:
        """The least index i with u Σ v < v₀ + … + vᵢ, for u in [0, 1].

        An int array `[n]` for an array, a NumPy integer for a float. u = 1 gives the
        last index that has a value; one whose value is 0 is never given.
        """
        share = np.asarray(u, np.float64)
        if share.ndim > 1 or not np.all((share >= 0) & (share <= 1)):
            raise ValueError(f"expected numbers in [0, 1], [n] or one, got {u}")
        if not self._nodes[1] > 0:
            raise ValueError("expected a tree with a value above 0, got none")
        goal = share * self._nodes[1]
        # The sum in front of a node is carried down, not subtracted from the goal:
        # for whole numbers it stays exact.
        sum_before, node = np.zeros(share.shape), np.ones(share.shape, np.int64)
        for _ in range(self._depth):
            middle = sum_before + self._nodes[2 * node]
            is_right = (goal >= middle) & (self._nodes[2 * node + 1] > 0)
            sum_before = np.where(is_right, middle, sum_before)
            node = 2 * node + is_right
        return (node - self._first_leaf)[()]

    def sample(self, n: int) -> np.ndarray:
        """`n` indices, drawn with replacement: ints `[n]`."""
        if n < 1:
            raise ValueError(f"expected a positive number of samples, got {n}")
        return self.inverse_cdf(self._random.random(n))


class MinTree(SegmentTree):
    """A segment tree of minima; ∞ where nothing was set."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.minimum, np.inf)


class MaxTree(SegmentTree):
    """A segment tree of maxima; −∞ where nothing was set."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.maximum, -np.inf)


def _elementwise(reducer: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two floats as one of two arrays."""
    if isinstance(reducer, np.ufunc):
        return reducer
    if reducer in _UFUNCS:
        return _UFUNCS[reducer]
    ufunc = np.frompyfunc(reducer, 2, 1)
    return lambda left, right: np.asarray(ufunc(left, right), np.float64)
