"""Spaces: Gymnasium's spaces, as JAX sees them.

`sample` and `contains` are about one element and run under `jit` and `vmap`; what a
space says itself (bounds, sizes) is constant. Elements of `Tuple` and `Dict` are tuples
and dicts. JAX works in 32 bits: `dtype` tells what becomes of 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.types import Array, ArrayTree, Key
from rlcli.xla.random_bits import unrolled


def dtype(space: gymnasium.Space) -> np.dtype:
    """The dtype that arrays of a space have in JAX: 64 bits become 32."""
    if space.dtype is None or space.dtype.kind not in "biuf":
        raise TypeError(f"expected a space of numbers, got {space}")
    return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))


def zeros(space: gymnasium.Space) -> ArrayTree:
    """Zeros in the shape and dtype of an element: an example, not always an element."""
    if isinstance(space, spaces.Tuple):
        return tuple(zeros(each) for each in space.spaces)
    if isinstance(space, spaces.Dict):
        return {name: zeros(each) for name, each in space.spaces.items()}
    if space.shape is None:
        raise TypeError(f"expected a space of fixed shape, got {space}")
    return jnp.zeros(space.shape, dtype(space))


def members(space: gymnasium.Space) -> Mapping[Any, gymnasium.Space]:
    """The spaces that a Tuple or a Dict is made of, by index or name."""
    match space:
        case spaces.Tuple():
            return dict(enumerate(space.spaces))
        case spaces.Dict():
            return space.spaces
    return {}


def flat_size(space: gymnasium.Space) -> int:
    """How many numbers an element is when flattened; a choice of n counts n (one-hot).

    The same as `gymnasium.spaces.flatdim`.
    """
    return int(spaces.flatdim(space))


def flatten(space: gymnasium.Space, element: ArrayTree) -> Array:
    """An element as a vector of float32 `[flat_size]`, a choice one-hot.

    The same as `gymnasium.spaces.flatten`.
    """
    match space:
        case spaces.Discrete():
            return jax.nn.one_hot(element - int(space.start), int(space.n))
        case spaces.Box() | spaces.MultiBinary():
            return jnp.ravel(element).astype(jnp.float32)
        case spaces.MultiDiscrete():
            start = np.broadcast_to(space.start, space.nvec.shape)
            choices = jnp.ravel(element) - start.ravel()
            sizes = space.nvec.ravel()
            one_hot = [jax.nn.one_hot(choices[i], int(n)) for i, n in enumerate(sizes)]
            return jnp.concatenate(one_hot)
        case spaces.Tuple() | spaces.Dict():
            each = members(space).items()
            return jnp.concatenate([flatten(one, element[at]) for at, one in each])
    raise TypeError(f"expected a space of fixed shape, got {space}")


def sample(space: gymnasium.Space, key: Key, shape: tuple[int, ...] = ()) -> ArrayTree:
    """One random element, distributed as `space.sample()` is; or `shape` of them.

    `sample(env.action, key, (env.num_envs,))` is one for each environment, and cheaper
    than as many keys.
    """
    key = unrolled(key)
    match space:
        case spaces.Discrete():
            return _choice(key, shape, space.n, space.start, dtype(space))
        case spaces.MultiDiscrete():
            sizes = (*shape, *space.shape)
            return _choice(key, sizes, space.nvec, space.start, dtype(space))
        case spaces.MultiBinary():
            return _choice(key, (*shape, *space.shape), 2, 0, dtype(space))
        case spaces.Box() if space.dtype.kind == "f":
            return _point(space, key, shape)
        case spaces.Box():
            return _grid_point(space, key, shape)
        case spaces.Tuple():
            keys = jax.random.split(key, len(space.spaces))
            return tuple(
                sample(each, keys[i], shape) for i, each in enumerate(space.spaces)
            )
        case spaces.Dict():
            keys = jax.random.split(key, len(space.spaces))
            return {
                name: sample(each, keys[i], shape)
                for i, (name, each) in enumerate(space.spaces.items())
            }
    raise TypeError(f"expected a space of fixed shape, got {space}")


def contains(space: gymnasium.Space, x: ArrayTree) -> Array:
    """Whether `x` is an element, as `space.contains` says it: a bool array `[]`.

    A wrong shape, or a dtype that does not fit into the space's, is no element.
    """
    match space:
        case spaces.Tuple():
            if not isinstance(x, tuple) or len(x) != len(space.spaces):
                return jnp.array(False)
            return _every(
                contains(each, x[index]) for index, each in enumerate(space.spaces)
            )
        case spaces.Dict():
            if not isinstance(x, dict) or x.keys() != space.spaces.keys():
                return jnp.array(False)
            return _every(contains(each, x[name]) for name, each in space.items())
    x = jnp.asarray(x)
    if x.shape != space.shape:
        return jnp.array(False)
    if isinstance(space, spaces.MultiBinary):
        return jnp.all((x == 0) | (x == 1))
    low, high = bounds(space)
    if not np.can_cast(x.dtype, space.dtype):  # pyright: ignore[reportArgumentType]
        return jnp.array(False)  # `bounds` has refused spaces without a dtype
    return jnp.all((x >= low) & (x <= high))


def bounds(space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest element (inclusive), in the space's shape.

    64-bit bounds become the nearest ones that JAX's 32 bits can hold.
    """
    match space:
        case spaces.Box():
            low, high = space.low, space.high
        case spaces.Discrete() | spaces.MultiDiscrete():
            low = np.asarray(space.start, np.int64)
            n = space.n if isinstance(space, spaces.Discrete) else space.nvec
            high = low + np.asarray(n, np.int64) - 1
        case spaces.MultiBinary():
            low, high = np.zeros(space.shape), np.ones(space.shape)
        case _:
            raise TypeError(f"expected a space with bounds, got {space}")
    to = dtype(space)
    if to.kind in "iu":
        limits = np.iinfo(to)
        low, high = (np.clip(each, limits.min, limits.max) for each in (low, high))
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        return low.astype(to), high.astype(to)


def half_width(space: spaces.Box) -> np.ndarray:
    """Half the width of each entry of a Box, float32; 1 where it has no two bounds."""
    low, high = (each.astype(np.float32) for each in bounds(space))
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, np.where(bounded, high / 2 - low / 2, 1), 1)


def booleans(*shape: int) -> spaces.Box:
    """The space of arrays of bools in that shape."""
    return spaces.Box(0.0, 1.0, shape, bool)  # pyright: ignore[reportArgumentType, reportCallIssue] # Gymnasium takes it


def describe(space: gymnasium.Space) -> str:
    """A space in a few words, for messages.

    >>> describe(spaces.Box(-2, 2, (4,)))
    'Box(4,) in [-2, 2]'
    """
    match space:
        case spaces.Discrete(start=0):
            return f"Discrete({space.n})"
        case spaces.Discrete():
            return f"Discrete({space.n}, start={space.start})"
        case spaces.Box():
            kind = "" if space.dtype == np.float32 else f" of {space.dtype}"
            return f"Box{space.shape}{kind}{_interval(space)}"
        case spaces.Tuple():
            return f"Tuple({', '.join(describe(each) for each in space.spaces)})"
        case spaces.Dict():
            entries = (f"{name}: {describe(each)}" for name, each in space.items())
            return f"Dict({', '.join(entries)})"
    return str(space)


def _interval(space: spaces.Box) -> str:
    """The bounds where all entries share them, else nothing: they would be a page."""
    low, high = np.unique(space.low), np.unique(space.high)
    if len(low) != 1 or len(high) != 1:
        return ""
    return f" in [{float(low[0]):g}, {float(high[0]):g}]"


def _choice(
    key: Key, shape: tuple[int, ...], n: Any, start: Any, to: np.dtype
) -> Array:
    """Uniform in {start, …, start + n - 1}, entry by entry."""
    n = np.asarray(n, np.int64)
    if np.any(n > np.iinfo(np.int32).max):
        raise ValueError(f"expected choices that 32 bits can count, got {n.max()}")
    drawn = jax.random.randint(key, shape, 0, n.astype(np.int32))
    return (drawn + np.asarray(start).astype(np.int32)).astype(to)


def _point(space: spaces.Box, key: Key, shape: tuple[int, ...]) -> Array:
    """Each entry by its interval: [a, b] uniform, [a, ∞) and (-∞, b] exponential from
    the bound, (-∞, ∞) normal. Drawn in float32 at least.
    """
    uniform_key, tail_key, normal_key = (jax.random.fold_in(key, i) for i in range(3))
    to, shape = dtype(space), (*shape, *space.shape)
    low, high = (each.astype(np.float32) for each in bounds(space))
    below, above = np.isfinite(low), np.isfinite(high)
    # Stand-ins for infinity, so that no branch that is not taken makes a NaN.
    low, high = np.where(below, low, 0), np.where(above, high, 0)
    share = jax.random.uniform(uniform_key, shape)
    # Not low + share (high - low): that overflows where the interval is all of float32.
    drawn = low * (1 - share) + high * share
    if not np.all(below & above):
        tail = jax.random.exponential(tail_key, shape)
        normal = jax.random.normal(normal_key, shape)
        outward = jnp.where(below, low + tail, high - tail)
        drawn = jnp.where(below & above, drawn, outward)
        drawn = jnp.where(below | above, drawn, normal)
    return jnp.clip(drawn.astype(to), *bounds(space))  # rounding may step over


def _grid_point(space: spaces.Box, key: Key, shape: tuple[int, ...]) -> Array:
    """As `_point`, rounded down, for integers and booleans.

    The largest 32-bit integer itself is never drawn: nothing in 32 bits lies above it.
    """
    uniform_key, tail_key, normal_key = (jax.random.fold_in(key, i) for i in range(3))
    to, shape = dtype(space), (*shape, *space.shape)
    wide = np.dtype(np.uint32 if to == np.uint32 else np.int32)
    low, high = (each.astype(wide) for each in bounds(space))
    below, above = space.bounded_below, space.bounded_above
    limit = np.minimum(high, np.iinfo(wide).max - 1)
    between = jax.random.randint(uniform_key, shape, low, limit + 1, wide)
    if np.all(below & above):
        return between.astype(to)
    tail = jnp.floor(jax.random.exponential(tail_key, shape)).astype(wide)
    normal = jnp.floor(jax.random.normal(normal_key, shape)).astype(wide)
    # `high` is an exclusive bound plus one: rounding down b + 1 - e gives b - ⌊e⌋.
    drawn = jnp.where(below, low + tail, high - tail)
    drawn = jnp.where(below & above, between, drawn)
    drawn = jnp.where(below | above, drawn, normal)
    return jnp.clip(drawn, low, high).astype(to)


def _every(answers: Any) -> Array:
    return jnp.all(jnp.array(list(answers), bool))
