"""Conversion: between the spaces of foreign environments and those that parts see.

What parts see counts choices from 0, and has 32 bits. All is NumPy's, for whole batches
`[N, ...]`, with plain tuples and dicts for the members of a Tuple and a Dict.
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


def _over(
    space: gymnasium.Space, make: Callable[[gymnasium.Space], Callable]
) -> Callable[[ArrayTree], ArrayTree]:
    """A function of batches of a space's elements: of each leaf, what `make` makes."""
    if isinstance(space, spaces.Tuple):
        members = [_over(each, make) for each in space.spaces]
        return lambda batch: tuple(
            each(part) for each, part in zip(members, batch, strict=True)
        )
    if isinstance(space, spaces.Dict):
        entries = {name: _over(each, make) for name, each in space.items()}
        return lambda batch: {name: each(batch[name]) for name, each in entries.items()}
    return make(space)


def shown(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
    """What makes new arrays, as parts see them, of a batch of the space's elements."""

    def leaf(space: gymnasium.Space) -> Callable[[Any], HostArray]:
        to, start = dtype(space), _start(space)
        if start is None:
            return lambda batch: np.array(batch, to)
        return lambda batch: np.asarray(batch - start, to)

    return _over(space, leaf)


def taken(
    space: gymnasium.Space, grid: tuple[int, int]
) -> Callable[[ArrayTree], ArrayTree]:
    """What copies actions `[S, B, ...]`, as parts choose them, to `[S · B, ...]`."""

    def leaf(space: gymnasium.Space) -> Callable[[Any], HostArray]:
        to, flat = dtype(space), (math.prod(grid), *(space.shape or ()))

        def copied(batch: Any) -> HostArray:
            array = np.array(batch, to)
            if array.shape[:2] != grid:
                raise ValueError(f"expected actions {grid}, got {array.shape}")
            return array.reshape(flat)

        return copied

    return _over(space, leaf)


def native(space: gymnasium.Space) -> Callable[[ArrayTree], ArrayTree]:
    """What makes actions, as environments take them, of a batch that parts chose.

    Choices count from where the space has them begin; a Box clips what is beyond it.
    """

    def leaf(space: gymnasium.Space) -> Callable[[HostArray], HostArray]:
        if isinstance(space, spaces.Box):
            low, high, to = space.low, space.high, space.dtype
            return lambda batch: np.clip(batch.astype(to, copy=False), low, high)
        start, to = _start(space), space.dtype
        if start is None:
            return lambda batch: batch.astype(to, copy=False)
        return lambda batch: batch.astype(to) + start

    return _over(space, leaf)


def _start(space: gymnasium.Space) -> Any:
    """Where choices begin, unless that is 0."""
    start = getattr(space, "start", None)
    return start if start is not None and np.any(start) else None


def mapped(function: Callable, tree: ArrayTree, *rest: ArrayTree) -> Any:
    """`jax.tree.map`, which takes longer than a step of CartPole, for lone arrays."""
    if isinstance(tree, np.ndarray):
        return function(tree, *rest)
    return jax.tree.map(function, tree, *rest)


def together(space: gymnasium.Space) -> Callable[[Sequence[Any]], ArrayTree]:
    """What makes arrays, as parts see them, of a list of a space's elements.

    It raises a ValueError that names the first shape that is not the space's.
    """
    if isinstance(space, spaces.Tuple):
        members = [together(each) for each in space.spaces]
        return lambda items: tuple(
            each([item[i] for item in items]) for i, each in enumerate(members)
        )
    if isinstance(space, spaces.Dict):
        entries = {name: together(each) for name, each in space.items()}
        return lambda items: {
            name: each([item[name] for item in items]) for name, each in entries.items()
        }
    shape, to, start = space.shape or (), dtype(space), _start(space)

    def mistake(items: Sequence[Any]) -> ValueError:
        wrong = next(np.shape(item) for item in items if np.shape(item) != shape)
        return ValueError(
            f"an observation has shape {wrong}, but its space is {describe(space)}"
        )

    def joined(items: Sequence[Any]) -> HostArray:
        try:
            array = np.array(items, to)
        except ValueError:  # of different shapes
            raise mistake(items) from None
        if array.shape[1:] != shape:
            raise mistake(items)
        return array if start is None else array - np.asarray(start, to)

    return joined
