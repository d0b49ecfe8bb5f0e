"""Conversion: between the spaces of foreign environments and those that parts see.

What parts see counts choices from 0, and has 32 bits. All is NumPy's, for whole batches
`[N, ...]`, with plain tuples and dicts for the members of a Tuple and a Dict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from rlcli.errors import RlcliError
from rlcli.spaces import describe, dtype
from rlcli.types import ArrayTree

HostArray = Any  # a NumPy array, where the records of `types` say a JAX one


def exposed(space: gymnasium.Space, whose: str) -> gymnasium.Space:
    """The space that parts see: choices count from 0, float64 is float32.

    `whose` begins the error for a space whose elements have no fixed shape.
    """
    match space:
        case spaces.Discrete():
            return spaces.Discrete(int(space.n), dtype=space.dtype.type)
        case spaces.MultiDiscrete():
            return spaces.MultiDiscrete(space.nvec, dtype=space.dtype.type)
        case spaces.MultiBinary():
            return space
        case spaces.Box():
            return _narrow(space)
        case spaces.Tuple():
            return spaces.Tuple([exposed(each, whose) for each in space.spaces])
        case spaces.Dict():
            members = {name: exposed(each, whose) for name, each in space.items()}
            return spaces.Dict(members)
    raise RlcliError(
        f"{whose} is {describe(space)}, which has no arrays of fixed shape",
        "a wrapper around the environment can make it a Box",
    )


def _narrow(space: spaces.Box) -> spaces.Box:
    if space.dtype != np.float64:
        return space
    with np.errstate(over="ignore"):  # bounds beyond float32 are none
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return spaces.Box(low, high, space.shape, np.float32)


def shown(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
    """What makes new arrays, as parts see them, of a batch of the space's elements."""
    if isinstance(space, spaces.Tuple):
        members = [shown(each) for each in space.spaces]
        return lambda batch: tuple(
            each(part) for each, part in zip(members, batch, strict=True)
        )
    if isinstance(space, spaces.Dict):
        entries = {name: shown(each) for name, each in space.items()}
        return lambda batch: {name: each(batch[name]) for name, each in entries.items()}
    to, start = dtype(space), _start(space)
    if start is None:
        return lambda batch: np.array(batch, to)
    return lambda batch: np.asarray(batch - start, to)


class Native:
    """What makes actions, as environments take them, of those that parts choose.

    Choices count from where the space has them begin; a Box clips what is beyond it.
    """

    def __init__(self, space: gymnasium.Space) -> None:
        self.space = space
        self.convert = _native(space)

    def example(self, count: int) -> ArrayTree:
        """Zeros, `[count, ...]`, as parts choose them."""

        def zeros(space: gymnasium.Space) -> ArrayTree:
            if isinstance(space, spaces.Tuple):
                return tuple(zeros(each) for each in space.spaces)
            if isinstance(space, spaces.Dict):
                return {name: zeros(each) for name, each in space.items()}
            return np.zeros((count, *(space.shape or ())), dtype(space))

        return zeros(self.space)


def _native(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
    if isinstance(space, spaces.Tuple):
        members = [_native(each) for each in space.spaces]
        return lambda batch: tuple(
            each(part) for each, part in zip(members, batch, strict=True)
        )
    if isinstance(space, spaces.Dict):
        entries = {name: _native(each) for name, each in space.items()}
        return lambda batch: {name: each(batch[name]) for name, each in entries.items()}
    if isinstance(space, spaces.Box):
        low, high, to = space.low, space.high, space.dtype
        return lambda batch: np.clip(batch.astype(to, copy=False), low, high)
    start, to = _start(space), space.dtype
    if start is None:
        return lambda batch: batch.astype(to, copy=False)
    return lambda batch: batch.astype(to) + start


def _start(space: gymnasium.Space) -> Any:
    """Where choices begin, unless that is 0."""
    start = getattr(space, "start", None)
    return start if start is not None and np.any(start) else None


def plain(space: gymnasium.Space, batch: Any) -> ArrayTree:
    """A batch as plain tuples and dicts, which JAX takes for trees of one kind."""
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, batch, strict=True)
        return tuple(plain(each, part) for each, part in pairs)
    if isinstance(space, spaces.Dict):
        return {name: plain(each, batch[name]) for name, each in space.items()}
    return np.asarray(batch)


def mapped(function: Callable, tree: ArrayTree, *rest: ArrayTree) -> Any:
    """`jax.tree.map`, which takes longer than a step of CartPole, for lone arrays."""
    if isinstance(tree, np.ndarray):
        return function(tree, *rest)
    return jax.tree.map(function, tree, *rest)


def together(space: gymnasium.Space, items: Sequence[Any]) -> ArrayTree:
    """Elements of a space as one array for each leaf; None is zeros.

    A ValueError names the first shape that is not the space's.
    """
    if isinstance(space, spaces.Tuple):
        return tuple(
            together(each, [None if item is None else item[i] for item in items])
            for i, each in enumerate(space.spaces)
        )
    if isinstance(space, spaces.Dict):
        return {
            name: together(
                each, [None if item is None else item[name] for item in items]
            )
            for name, each in space.items()
        }
    shape = space.shape or ()
    array = np.zeros((len(items), *shape), space.dtype)
    for index, item in enumerate(items):
        if item is None:
            continue
        if shape != (item.shape if isinstance(item, np.ndarray) else np.shape(item)):
            raise ValueError(
                f"an observation has shape {np.shape(item)}, "
                f"but its space is {describe(space)}"
            )
        array[index] = item
    return array
