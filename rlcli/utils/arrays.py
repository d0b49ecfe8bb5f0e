"""Arrays: small functions of one array, NumPy's or JAX's."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, Key


def argmax(rng: Key, arr: Any, axis: int | None = -1) -> Array:
    """Where the largest entry is along an axis; ties are broken at random, evenly.

    `arr` `[..., n, ...]` gives int32 `[...]`, without the axis; None: the index into
    the flattened array. As in NumPy, NaN counts as the largest.
    """
    return _argbest(jnp.max, rng, arr, axis)


def argmin(rng: Key, arr: Any, axis: int | None = -1) -> Array:
    """Where the smallest entry is along an axis; ties are broken at random, evenly.

    As `argmax`, along any axis of any array.
    """
    return _argbest(jnp.min, rng, arr, axis)


def _argbest(best: Callable[..., Array], rng: Key, arr: Any, axis: int | None) -> Array:
    arr = jnp.asarray(arr)
    if axis is None:
        arr, axis = arr.ravel(), -1
    # A NaN is the only number that differs from itself, and what `best` then gives.
    is_best = (arr == best(arr, axis=axis, keepdims=True)) | (arr != arr)
    order = jax.random.uniform(rng, arr.shape)
    return jnp.argmax(jnp.where(is_best, order, -1.0), axis=axis)


def check_array(
    arr: Any,
    ndim: int | Collection[int] | None = None,
    ndim_min: int | None = None,
    ndim_max: int | None = None,
    dtype: Any = None,
    shape: tuple[int, ...] | None = None,
    axis_size: int | Collection[int] | None = None,
    axis: int | None = None,
    except_np: bool = False,
) -> None:
    """Checks common properties of an array, NumPy's or JAX's.

    `ndim`, `dtype` and `axis_size` (the size along `axis`) may each be a collection of
    what is allowed. `except_np` lets NumPy's arrays pass; they do without it as well.

    Raises:
        TypeError: if it is no array, or one of the properties does not hold.
    """
    del except_np  # an array is an array here, wherever it lies
    if not isinstance(arr, np.ndarray | jax.Array):
        raise TypeError(f"expected an array, got {type(arr)}")
    description = f"an array of shape {arr.shape} and dtype {arr.dtype}"
    if ndim is not None and arr.ndim not in _as_collection(ndim):
        raise TypeError(f"expected ndim {ndim}, got {description}")
    if ndim_min is not None and arr.ndim < ndim_min:
        raise TypeError(f"expected ndim of at least {ndim_min}, got {description}")
    if ndim_max is not None and arr.ndim > ndim_max:
        raise TypeError(f"expected ndim of at most {ndim_max}, got {description}")
    if dtype is not None and arr.dtype not in map(jnp.dtype, _as_collection(dtype)):
        raise TypeError(f"expected dtype {dtype}, got {description}")
    if shape is not None and arr.shape != tuple(shape):
        raise TypeError(f"expected shape {tuple(shape)}, got {description}")
    if axis_size is not None and axis is not None:
        has_axis = -arr.ndim <= axis < arr.ndim
        if not has_axis or arr.shape[axis] not in _as_collection(axis_size):
            raise TypeError(
                f"expected size {axis_size} on axis {axis}, got {description}"
            )


def _as_collection(what: Any) -> Collection[Any]:
    return what if isinstance(what, list | tuple | set | frozenset) else (what,)


def clipped_logit(x: Any, epsilon: float = 1e-15) -> Array:
    """The logit, without infinities at 0 and 1; float `[...]` as `x`.

    logit(x) = log max(ε, x) − log max(ε, 1 − x)        x ∈ [0, 1]
    """
    x = jnp.asarray(x)
    return jnp.log(jnp.maximum(epsilon, x)) - jnp.log(jnp.maximum(epsilon, 1 - x))


def diff_transform_matrix(num_frames: int, dtype: Any = "float32") -> np.ndarray:
    """The matrix that makes derivatives of stacked frames, `[num_frames, num_frames]`.

        Mᵢⱼ = (−1)ⁿ⁻¹⁻ⁱ C(n−1−j, n−1−i)

                −1  0  0  0
        n = 4:   3  1  0  0
                −3 −2 −1  0
                 1  1  1  1

    Frames stand on the last axis, the newest last. Of X M, column n−1 is the newest
    frame, n−2 its difference to the one before (velocity), n−3 the second difference
    (acceleration), and so on.
    """
    if num_frames < 1:
        raise ValueError(f"expected at least one frame, got {num_frames}")
    last = num_frames - 1
    rows = [
        [(-1) ** (last - i) * math.comb(last - j, last - i) for j in range(num_frames)]
        for i in range(num_frames)
    ]
    return np.array(rows, jnp.dtype(dtype))


def diff_transform(X: Any, dtype: Any = "float32") -> Array:  # noqa: N803 - coax's name
    """Stacked frames `[..., n]` as position, velocity, acceleration … of the newest.

        X M, with M = diff_transform_matrix(n)

    The shape stays; position comes last. NumPy's for NumPy's arrays, else JAX's.
    """
    numpy = _array_module(X)
    X = numpy.asarray(X)
    matrix = diff_transform_matrix(X.shape[-1], dtype)
    if numpy is np:
        return X.astype(matrix.dtype) @ matrix
    # Accelerators would else multiply in fewer bits, and differences are small.
    exact = jax.lax.Precision.HIGHEST
    return jnp.matmul(X.astype(matrix.dtype), matrix, precision=exact)


def double_relu(arr: Any) -> Array:
    """Both halves of a ReLU beside one another: `[..., n]` gives `[..., 2n]`.

        [−relu(−x), relu(x)]

    Nothing is lost from layer to layer, yet half of what comes out is zero
    (Shang et al., 2016, https://arxiv.org/abs/1603.05201).
    """
    arr = jnp.asarray(arr)
    return jnp.concatenate([-jax.nn.relu(-arr), jax.nn.relu(arr)], axis=-1)


def idx(arr: Any, axis: int = 0) -> Array:
    """The indices along an axis: `[0, 1, …, arr.shape[axis] − 1]`.

    NumPy's for NumPy's arrays, else JAX's.
    """
    numpy = _array_module(arr)
    return numpy.arange(numpy.shape(arr)[axis])


def isscalar(num: Any) -> bool:
    """Whether it is a number, or an array with a single entry, of whatever shape."""
    if isinstance(num, np.ndarray | jax.Array):
        return num.size == 1
    if isinstance(num, np.generic):
        # Numbers of NumPy's, and those that extend it, such as bfloat16.
        return jnp.issubdtype(num.dtype, jnp.number) or isinstance(num, np.bool_)
    return isinstance(num, numbers.Number)


def _array_module(arr: Any) -> ModuleType:
    return jnp if isinstance(arr, jax.Array) else np
