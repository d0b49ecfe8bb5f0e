"""Conversion: checks and stacks what external environments return.

All functions take NumPy batches `[N, ...]`, with tuples and dicts for a Tuple and a
Dict. `rlcli.spaces.canonical` converts the numbers.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from rlcli.spaces import bounds, describe, dtype, exact_bounds, members
from rlcli.spaces.canonical import canonical_observation
from rlcli.types import ArrayTree

HostArray = Any  # a NumPy array where the types in `types` declare a JAX array


class InvalidOutputError(Exception):
    """An environment returned an invalid output, which the message describes.

    `index` is the environment's position in the batch that was stepped or reset.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def _map_leaves(
    space: gymnasium.Space,
    make: Callable[[gymnasium.Space], Callable],
    select: Callable[..., Any] = lambda batch, key, space: batch[key],
) -> Callable[..., Any]:
    """Builds a function of batches that applies `make(leaf space)` to each leaf.

    Its other arguments are those of each leaf's function. `select` finds the part of a
    member in the batch of a Tuple or a Dict.
    """
    if not isinstance(space, spaces.Tuple | spaces.Dict):
        return make(space)
    own, is_tuple = members(space).items(), isinstance(space, spaces.Tuple)
    converters = {key: _map_leaves(member, make, select) for key, member in own}

    def convert(batch: Any, *rest: Any) -> ArrayTree:
        parts = {
            key: convert_member(select(batch, key, space), *rest)
            for key, convert_member in converters.items()
        }
        return tuple(parts.values()) if is_tuple else parts

    return convert


def canonical_converter(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
    """Returns a function that converts batches of native elements to canonical ones.

    It always copies.
    """

    def leaf(space: gymnasium.Space) -> Callable[[Any], HostArray]:
        check = _dtype_checker(space)
        to_canonical = canonical_observation(space).to_canonical

        def convert(batch: Any) -> HostArray:
            if problem := check(batch):
                raise InvalidOutputError(problem)
            return to_canonical(np.array(batch))

        return convert

    return _map_leaves(space, leaf)


def _dtype_checker(space: gymnasium.Space) -> Callable[[Any], str]:
    """Returns a function that describes a wrong dtype of observations, or returns "".

    Numbers of another dtype are valid if conversion does not change them: 0.5 is not an
    element of a space of integers.
    """
    to, canonical = dtype(space), canonical_observation(space).space
    # Numbers of 64 bits are checked if the bounds of the space do not fit in 32.
    is_narrow = np.array_equal(bounds(canonical), exact_bounds(canonical))
    fitting: set[Any] = {to}  # dtypes and Python types that need no further check

    def check(element: Any) -> str:
        # The full check takes longer than a step of CartPole.
        kind = getattr(element, "dtype", None) or type(element)
        if kind in fitting:
            return ""
        try:
            array = np.asarray(element)
        except ValueError:  # lists of different lengths
            array = np.empty((), object)
        if _fits(array.dtype, to, is_narrow):
            if kind in (array.dtype, int, float, bool):
                fitting.add(kind)
            return ""
        if array.dtype.kind in "biuf":
            with np.errstate(invalid="ignore"):  # NaN is no integer
                if np.array_equal(array.astype(to), array):
                    return ""
        found = f"{_dtype_name(element, array)} instead of {to}"
        if array.dtype.kind == to.kind:
            found = f"numbers beyond {to}"
        return f"an observation of {found}; its space is {describe(space)}"

    return check


def _fits(given: np.dtype, to: np.dtype, is_narrow: bool) -> bool:
    """Whether a dtype can be converted; rounding and narrowing are accepted."""
    if to.kind == "f":
        return given.kind in "biuf"
    is_wide = to.kind == given.kind == "i" and to.itemsize >= 4
    return (is_wide and is_narrow) or np.can_cast(given, to)


def _dtype_name(element: Any, array: np.ndarray) -> str:
    return array.dtype.name if array.dtype.kind in "biufc" else type(element).__name__


def action_flattener(
    space: gymnasium.Space, grid: tuple[int, int]
) -> Callable[[ArrayTree], ArrayTree]:
    """Returns a function that copies actions `[S, B, ...]` to `[S · B, ...]`."""

    def leaf(space: gymnasium.Space) -> Callable[[Any], HostArray]:
        to, flat = dtype(space), (math.prod(grid), *(space.shape or ()))

        def convert(batch: Any) -> HostArray:
            array = np.array(batch, to)
            if array.shape[:2] != grid:
                raise ValueError(f"expected actions {grid}, got {array.shape}")
            return array.reshape(flat)

        return convert

    return _map_leaves(space, leaf)


def action_selector(space: gymnasium.Space) -> Callable[[ArrayTree, int], ArrayTree]:
    """Returns a function that selects an action of a batch, as an element of its space.

    It is an array for a Box, also of shape `()`, and a scalar for a Discrete space.
    """

    def leaf(space: gymnasium.Space) -> Callable[[HostArray, int], Any]:
        if isinstance(space, spaces.Box) and not space.shape:
            return lambda batch, index: batch[index, ...]
        return operator.getitem  # a row is an array already

    return _map_leaves(space, leaf)


def map_tree(function: Callable, tree: ArrayTree, *rest: ArrayTree) -> Any:
    """`jax.tree.map`, faster for a single array: it outlasts a step of CartPole."""
    if isinstance(tree, np.ndarray):
        return function(tree, *rest)
    return jax.tree.map(function, tree, *rest)


def select_rows(tree: ArrayTree, index: Any) -> ArrayTree:
    """The rows of all arrays at an index, a mask or indices."""
    return map_tree(operator.itemgetter(index), tree)


def write_rows(tree: ArrayTree, index: Any, rows: ArrayTree) -> None:
    """Writes rows into all arrays in place."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(rows), strict=True)
    for leaf, new in pairs:
        leaf[index] = new


def element_stacker(space: gymnasium.Space) -> Callable[[Sequence[Any]], ArrayTree]:
    """Returns a function that stacks a list of native elements into canonical arrays.

    It raises an `InvalidOutputError` for the first element of another structure, shape
    or dtype.
    """
    return _map_leaves(space, _leaf_stacker, _member)


def _leaf_stacker(space: gymnasium.Space) -> Callable[[Sequence[Any]], HostArray]:
    shape, check = space.shape or (), _dtype_checker(space)
    has_start = np.any(getattr(space, "start", 0))
    # Before the start is subtracted, a number may need 64 bits.
    to = space.dtype if has_start else dtype(space)
    to_canonical = canonical_observation(space).to_canonical

    def stack(items: Sequence[Any]) -> HostArray:
        for index, item in enumerate(items):
            if problem := check(item):
                raise InvalidOutputError(problem, index)
        try:
            with np.errstate(over="ignore"):  # floats beyond 32 bits become infinite
                array = np.array(items, to)
        except (ValueError, OverflowError):  # different shapes, or out of range
            array = None
        if array is None or array.shape[1:] != shape:
            shapes = [np.shape(item) for item in items]
            wrong = [i for i, item_shape in enumerate(shapes) if item_shape != shape]
            index = wrong[0] if wrong else 0
            problem = f"shape {shapes[index]}" if wrong else f"numbers beyond {to}"
            message = f"an observation of {problem}, but its space is {describe(space)}"
            raise InvalidOutputError(message, index)
        return to_canonical(array) if has_start else array

    return stack


def _member(items: Sequence[Any], name: Any, space: gymnasium.Space) -> list[Any]:
    """Selects one member from each element of a Tuple or a Dict."""
    found = []
    for index, item in enumerate(items):
        try:
            found.append(item[name])
        except (TypeError, LookupError):
            raise InvalidOutputError(
                f"an observation without the member `{name}` of its space, "
                f"{describe(space)}",
                index,
            ) from None
    return found
