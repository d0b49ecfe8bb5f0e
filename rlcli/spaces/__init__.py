"""Spaces: JAX functions for Gymnasium's spaces.

`sample` and `contains` handle one element and run under `jit` and `vmap`; bounds and
sizes are constants. Elements of `Tuple` and `Dict` are tuples and dicts. JAX uses 32
bits: `dtype` converts 64-bit dtypes.

Belongs here: functions of spaces; `canonical`, the spaces of agents.
May import: types, errors and xla.
"""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.types import Array, ArrayTree, Key
from rlcli.xla.random_bits import unroll_key

MAX_CHOICES = 1024  # of an entry of a Box of integers whose values are choices


def dtype(space: gymnasium.Space) -> np.dtype:
    """Returns the dtype of a space's arrays in JAX: 64 bits become 32."""
    if space.dtype is None or space.dtype.kind not in "biuf":
        raise TypeError(f"expected a space of numbers, got {space}")
    return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))


def zeros(space: gymnasium.Space, shape: tuple[int, ...] = ()) -> ArrayTree:
    """Returns zeros of the shape and dtype of one element, or of `shape` of them.

    They are not necessarily elements.
    """

    def leaf_zeros(space: gymnasium.Space) -> Array:
        if space.shape is None:
            raise TypeError(f"expected a space of fixed shape, got {space}")
        return jnp.zeros((*shape, *space.shape), dtype(space))

    return map_leaves(leaf_zeros, space)


def members(space: gymnasium.Space) -> Mapping[Any, gymnasium.Space]:
    """Returns the member spaces of a Tuple or a Dict, by index or name."""
    match space:
        case spaces.Tuple():
            return dict(enumerate(space.spaces))
        case spaces.Dict():
            return space.spaces
    return {}


def join_members(space: gymnasium.Space, values: Mapping[Any, Any]) -> Any:
    """A tuple or a dict, as the elements of a Tuple or a Dict, of a value by member."""
    return tuple(values.values()) if isinstance(space, spaces.Tuple) else dict(values)


def map_leaves(
    function: Callable[..., Any], space: gymnasium.Space, *elements: Any
) -> Any:
    """Applies `function(space, *leaves)` to the leaves of elements of a space.

    The result has a tuple for a Tuple, and a dict for a Dict.
    """
    if not isinstance(space, spaces.Tuple | spaces.Dict):
        return function(space, *elements)
    by_member = {
        key: map_leaves(function, member, *(element[key] for element in elements))
        for key, member in members(space).items()
    }
    return join_members(space, by_member)


def flat_size(space: gymnasium.Space) -> int:
    """The size of a flattened element; a Discrete(n) has size n (one-hot).

    The same as `gymnasium.spaces.flatdim`.
    """
    return int(spaces.flatdim(space))


def flatten(space: gymnasium.Space, element: ArrayTree) -> Array:
    """Flattens an element into float32 `[flat_size]`, discrete values one-hot.

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
            items = members(space).items()
            pieces = [flatten(member, element[key]) for key, member in items]
            return jnp.concatenate(pieces) if pieces else jnp.zeros(0)
    raise TypeError(f"expected a space of fixed shape, got {space}")


def sample(space: gymnasium.Space, key: Key, shape: tuple[int, ...] = ()) -> ArrayTree:
    """Samples one element, or `shape` of them, distributed as `space.sample()`.

    `sample(env.action, key, (env.num_envs,))` samples one for each environment, and is
    cheaper than one key for each.
    """
    key = unroll_key(key)
    match space:
        case spaces.Discrete():
            return _sample_choice(key, shape, space.n, space.start, dtype(space))
        case spaces.MultiDiscrete():
            sizes = (*shape, *space.shape)
            return _sample_choice(key, sizes, space.nvec, space.start, dtype(space))
        case spaces.MultiBinary():
            return _sample_choice(key, (*shape, *space.shape), 2, 0, dtype(space))
        case spaces.Box() if space.dtype.kind == "f":
            return _sample_box(space, key, shape)
        case spaces.Box():
            return _sample_integer_box(space, key, shape)
        case spaces.Tuple() | spaces.Dict():
            keys = jax.random.split(key, len(space.spaces))
            by_member = {
                name: sample(member, keys[i], shape)
                for i, (name, member) in enumerate(members(space).items())
            }
            return join_members(space, by_member)
    raise TypeError(f"expected a space of fixed shape, got {space}")


def contains(space: gymnasium.Space, x: ArrayTree) -> Array:
    """Whether `x` is an element, as in `space.contains`: a bool array `[]`.

    False for a wrong shape, or a dtype that cannot be cast to that of the space.
    """
    if isinstance(space, spaces.Tuple | spaces.Dict):
        kind = tuple if isinstance(space, spaces.Tuple) else dict
        own = dict(enumerate(x)) if isinstance(x, tuple) else x
        if not isinstance(x, kind) or own.keys() != members(space).keys():
            return jnp.array(False)
        flags = [contains(each, own[key]) for key, each in members(space).items()]
        return jnp.all(jnp.array(flags, bool))
    x = jnp.asarray(x)
    if x.shape != space.shape:
        return jnp.array(False)
    if isinstance(space, spaces.MultiBinary):
        return jnp.all((x == 0) | (x == 1))
    low, high = bounds(space)
    if not np.can_cast(x.dtype, space.dtype):  # pyright: ignore[reportArgumentType]
        return jnp.array(False)  # `bounds` has refused spaces without a dtype
    return jnp.all((x >= low) & (x <= high))


def exact_bounds(space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lower and upper bounds (inclusive), in the space's shape.

    They have the dtype of the space, and those of discrete spaces 64 bits.
    """
    match space:
        case spaces.Box():
            return space.low, space.high
        case spaces.Discrete() | spaces.MultiDiscrete():
            low = np.asarray(space.start, np.int64)
            n = space.n if isinstance(space, spaces.Discrete) else space.nvec
            return low, np.asarray(low + n - 1, np.int64)
        case spaces.MultiBinary():
            return np.zeros(space.shape), np.ones(space.shape)
    raise TypeError(f"expected a space with bounds, got {space}")


def count_integers(space: spaces.Box) -> np.ndarray:
    """The number of integers between the bounds of each entry, float64."""
    # In float64, where 64-bit bounds do not overflow.
    return space.high.astype(np.float64) - space.low.astype(np.float64) + 1


def bounds(space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    """As `exact_bounds`, in 32 bits: 64-bit bounds become the nearest 32-bit ones."""
    low, high = exact_bounds(space)
    to = dtype(space)
    if to.kind in "iu":
        limits = np.iinfo(to)
        low, high = (np.clip(bound, limits.min, limits.max) for bound in (low, high))
    with np.errstate(over="ignore"):  # overflow to infinity is intended
        return np.asarray(low, to), np.asarray(high, to)


def boolean_box(*shape: int) -> spaces.Box:
    """Returns the Box of boolean arrays of that shape."""
    return spaces.Box(0.0, 1.0, shape, bool)  # pyright: ignore[reportArgumentType, reportCallIssue] # Gymnasium takes it


def describe(space: gymnasium.Space) -> str:
    """A short description of a space, for messages.

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
            return f"Box{space.shape}{kind}{_format_interval(space)}"
        case spaces.Tuple():
            return f"Tuple({', '.join(describe(member) for member in space.spaces)})"
        case spaces.Dict():
            entries = (f"{name}: {describe(member)}" for name, member in space.items())
            return f"Dict({', '.join(entries)})"
    return str(space)


def to_plain(space: gymnasium.Space) -> dict[str, Any]:
    """A description of a space as data for JSON."""
    match space:
        case spaces.Box():
            return {
                "type": "Box",
                "low": collapse(space.low),
                "high": collapse(space.high),
            }
        case spaces.Discrete():
            return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            sizes = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            return {"type": "MultiDiscrete", **sizes}
        case spaces.Tuple() | spaces.Dict():
            plain = {
                str(key): to_plain(member) for key, member in members(space).items()
            }
            return {"type": type(space).__name__, "members": plain}
    return {"type": type(space).__name__}


def collapse(array: np.ndarray) -> Any:
    """An array as nested lists, or one number if all are equal; null if infinite."""
    values = np.unique(array)
    if values.size == 1:
        return _finite(values[0].item())
    return _finite(array.tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if np.isfinite(value) else None


def _format_interval(space: spaces.Box) -> str:
    """The bounds if all entries share them, else "", which keeps messages short."""
    low, high = np.unique(space.low), np.unique(space.high)
    if len(low) != 1 or len(high) != 1:
        return ""
    return f" in [{float(low[0]):g}, {float(high[0]):g}]"


def _sample_choice(
    key: Key, shape: tuple[int, ...], n: Any, start: Any, to: np.dtype
) -> Array:
    """Uniform in {start, …, start + n - 1}, entry by entry."""
    n = np.asarray(n, np.int64)
    if np.any(n > np.iinfo(np.int32).max):
        raise ValueError(f"expected n that fits in 32 bits, got {n.max()}")
    indices = jax.random.randint(key, shape, 0, n.astype(np.int32))
    return (indices + np.asarray(start).astype(np.int32)).astype(to)


def _sample_box(space: spaces.Box, key: Key, shape: tuple[int, ...]) -> Array:
    """Samples each entry by its interval: [a, b] uniform, [a, ∞) and (-∞, b]
    exponential from the bound, (-∞, ∞) normal. Computed in float32 or wider.
    """
    uniform_key, tail_key, normal_key = (jax.random.fold_in(key, i) for i in range(3))
    to, shape = dtype(space), (*shape, *space.shape)
    low, high = (bound.astype(np.float32) for bound in bounds(space))
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    # Finite placeholders, so that branches that are not selected produce no NaN.
    low, high = np.where(has_low, low, 0), np.where(has_high, high, 0)
    share = jax.random.uniform(uniform_key, shape)
    # Not low + share (high - low), which overflows for the full range of float32.
    samples = low * (1 - share) + high * share
    if not np.all(has_low & has_high):
        tail = jax.random.exponential(tail_key, shape)
        normal = jax.random.normal(normal_key, shape)
        outward = jnp.where(has_low, low + tail, high - tail)
        samples = jnp.where(has_low & has_high, samples, outward)
        samples = jnp.where(has_low | has_high, samples, normal)
    return jnp.clip(samples.astype(to), *bounds(space))  # rounding may exceed a bound


def _sample_integer_box(space: spaces.Box, key: Key, shape: tuple[int, ...]) -> Array:
    """As `_sample_box`, rounded down, for integers and booleans.

    The largest 32-bit integer is never sampled: its exclusive bound does not fit.
    """
    uniform_key, tail_key, normal_key = (jax.random.fold_in(key, i) for i in range(3))
    to, shape = dtype(space), (*shape, *space.shape)
    wide = np.dtype(np.uint32 if to == np.uint32 else np.int32)
    low, high = (bound.astype(wide) for bound in bounds(space))
    has_low, has_high = space.bounded_below, space.bounded_above
    limit = np.minimum(high, np.iinfo(wide).max - 1)
    inside = jax.random.randint(uniform_key, shape, low, limit + 1, wide)
    if np.all(has_low & has_high):
        return inside.astype(to)
    tail = jnp.floor(jax.random.exponential(tail_key, shape)).astype(wide)
    normal = jnp.floor(jax.random.normal(normal_key, shape)).astype(wide)
    # `high` is an exclusive bound plus one: rounding down b + 1 - e gives b - ⌊e⌋.
    samples = jnp.where(has_low, low + tail, high - tail)
    samples = jnp.where(has_low & has_high, inside, samples)
    samples = jnp.where(has_low | has_high, samples, normal)
    return jnp.clip(samples, low, high).astype(to)
