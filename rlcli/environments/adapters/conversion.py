"""Conversion between native spaces of external environments and canonical spaces.

Parts use canonical spaces: discrete values start at 0, and dtypes have 32 bits. All
functions take NumPy batches `[N, ...]`, with tuples and dicts for a Tuple and a Dict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from rlcli.errors import RlcliError
from rlcli.spaces import describe, dtype
from rlcli.types import ArrayTree

HostArray = Any  # a NumPy array where the types in `types` declare a JAX array


class InvalidOutputError(Exception):
    """An environment returned an invalid output, which the message describes.

    `index` is the environment's position in the batch that was stepped or reset.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def canonical_space(space: gymnasium.Space, owner: str) -> gymnasium.Space:
    """Returns the canonical space: discrete values start at 0, float64 is float32.

    `owner` is the prefix of the error for a space without a fixed shape.
    """
    match space:
        case spaces.Discrete():
            return spaces.Discrete(int(space.n), dtype=space.dtype.type)
        case spaces.MultiDiscrete():
            return spaces.MultiDiscrete(space.nvec, dtype=space.dtype.type)
        case spaces.MultiBinary():
            return space
        case spaces.Box():
            return _narrow_box(space)
        case spaces.Tuple():
            return spaces.Tuple(
                [canonical_space(member, owner) for member in space.spaces]
            )
        case spaces.Dict():
            members = {
                name: canonical_space(member, owner) for name, member in space.items()
            }
            return spaces.Dict(members)
    raise RlcliError(
        f"{owner} is {describe(space)}, which has no fixed shape",
        "wrap the environment to convert the space into a Box",
    )


def _narrow_box(space: spaces.Box) -> spaces.Box:
    if space.dtype != np.float64:
        return space
    with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return spaces.Box(low, high, space.shape, np.float32)


def _map_leaves(
    space: gymnasium.Space, make: Callable[[gymnasium.Space], Callable]
) -> Callable[[ArrayTree], ArrayTree]:
    """Builds a function of batches that applies `make(leaf space)` to each leaf."""
    if isinstance(space, spaces.Tuple):
        members = [_map_leaves(member, make) for member in space.spaces]
        return lambda batch: tuple(
            convert(part) for convert, part in zip(members, batch, strict=True)
        )
    if isinstance(space, spaces.Dict):
        entries = {name: _map_leaves(member, make) for name, member in space.items()}
        return lambda batch: {
            name: convert(batch[name]) for name, convert in entries.items()
        }
    return make(space)


def canonical_converter(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
    """Returns a function that converts batches of native elements to canonical ones.

    It always copies.
    """

    def leaf(space: gymnasium.Space) -> Callable[[Any], HostArray]:
        to, start = dtype(space), _discrete_start(space)
        check = _dtype_checker(space)

        def convert(batch: Any) -> HostArray:
            if problem := check(batch):
                raise InvalidOutputError(problem)
            if start is None:
                return np.array(batch, to)
            return np.asarray(batch - start, to)

        return convert

    return _map_leaves(space, leaf)


def _dtype_checker(space: gymnasium.Space) -> Callable[[Any], str]:
    """Returns a function that describes a wrong dtype of observations, or returns "".

    Numbers of another dtype are valid if conversion does not change them: 0.5 is not an
    element of a space of integers.
    """
    to = dtype(space)
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
        if _fits(array.dtype, to):
            if kind in (array.dtype, int, float, bool):
                fitting.add(kind)
            return ""
        if array.dtype.kind in "biuf":
            with np.errstate(invalid="ignore"):  # NaN is no integer
                if np.array_equal(array.astype(to), array):
                    return ""
        return (
            f"an observation of {_dtype_name(element, array)} instead of {to}; its "
            f"space is {describe(space)}"
        )

    return check


def _fits(given: np.dtype, to: np.dtype) -> bool:
    """Whether a dtype can be converted; rounding and narrowing are accepted."""
    if to.kind == "f":
        return given.kind in "biuf"
    wide = to.kind == given.kind == "i" and to.itemsize >= 4  # values are small
    return wide or np.can_cast(given, to)


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


def native_converter(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
    """Returns a function that converts a batch of canonical actions to native ones.

    Discrete values are offset by the start of the space; those of a Box are clipped. It
    always copies: an environment may change its action in place.
    """

    def leaf(space: gymnasium.Space) -> Callable[[HostArray], HostArray]:
        if isinstance(space, spaces.Box):
            low, high, to = space.low, space.high, space.dtype
            return lambda batch: np.clip(batch.astype(to, copy=False), low, high)
        start, to = _discrete_start(space), space.dtype
        if start is None:
            return lambda batch: batch.astype(to)
        return lambda batch: batch.astype(to) + start

    return _map_leaves(space, leaf)


def _discrete_start(space: gymnasium.Space) -> Any:
    """The `start` of a discrete space; None if it is 0."""
    start = getattr(space, "start", None)
    return start if start is not None and np.any(start) else None


def map_tree(function: Callable, tree: ArrayTree, *rest: ArrayTree) -> Any:
    """`jax.tree.map`, faster for a single array: it outlasts a step of CartPole."""
    if isinstance(tree, np.ndarray):
        return function(tree, *rest)
    return jax.tree.map(function, tree, *rest)


def element_stacker(space: gymnasium.Space) -> Callable[[Sequence[Any]], ArrayTree]:
    """Returns a function that stacks a list of native elements into canonical arrays.

    It raises an `InvalidOutputError` for the first element of another structure, shape
    or dtype.
    """
    if isinstance(space, spaces.Tuple):
        members = [element_stacker(member) for member in space.spaces]
        return lambda items: tuple(
            stack(_member(items, i, space)) for i, stack in enumerate(members)
        )
    if isinstance(space, spaces.Dict):
        entries = {name: element_stacker(member) for name, member in space.items()}
        return lambda items: {
            name: stack(_member(items, name, space)) for name, stack in entries.items()
        }
    shape, to, start = space.shape or (), dtype(space), _discrete_start(space)
    check = _dtype_checker(space)

    def stack(items: Sequence[Any]) -> HostArray:
        for index, item in enumerate(items):
            if problem := check(item):
                raise InvalidOutputError(problem, index)
        try:
            array = np.array(items, to)
        except (ValueError, OverflowError):  # different shapes, or out of range
            array = None
        if array is None or array.shape[1:] != shape:
            shapes = [np.shape(item) for item in items]
            wrong = [i for i, item_shape in enumerate(shapes) if item_shape != shape]
            index = wrong[0] if wrong else 0
            problem = f"shape {shapes[index]}" if wrong else f"numbers beyond {to}"
            raise InvalidOutputError(
                f"an observation of {problem}, but its space is {describe(space)}",
                index,
            )
        return array if start is None else array - np.asarray(start, to)

    return stack


def _member(items: Sequence[Any], name: Any, space: gymnasium.Space) -> list[Any]:
    """Selects one member from each element of a Tuple or a Dict."""
    members = []
    for index, item in enumerate(items):
        try:
            members.append(item[name])
        except (TypeError, LookupError):
            raise InvalidOutputError(
                f"an observation without the member `{name}` of its space, "
                f"{describe(space)}",
                index,
            ) from None
    return members
