"""Arrays: small functions of a NumPy or JAX array."""

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
    """The index of the maximum along an axis; breaks ties uniformly at random.

    Returns int32 `[...]`, without the axis, for `arr` `[..., n, ...]`. If `axis` is
    None, returns the index into the flattened array. As in NumPy, NaN is the maximum.
    """
    return _argbest(jnp.max, rng, arr, axis)


def argmin(rng: Key, arr: Any, axis: int | None = -1) -> Array:
    """The index of the minimum along an axis; breaks ties uniformly at random.

    Arguments and result are those of `argmax`.
    """
    return _argbest(jnp.min, rng, arr, axis)


def _argbest(best: Callable[..., Array], rng: Key, arr: Any, axis: int | None) -> Array:
    arr = jnp.asarray(arr)
    if axis is None:
        arr, axis = arr.ravel(), -1
    # NaN is the only number that differs from itself; `best` returns it if present.
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
    """Checks common properties of a NumPy or JAX array.

    `ndim`, `dtype` and `axis_size` (the size along `axis`) may each be a collection of
    allowed values. `except_np` has no effect: NumPy arrays are always accepted.

    Raises:
        TypeError: if `arr` is not an array, or a property does not hold.
    """
    del except_np  # for compatibility with coax
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


def _as_collection(value: Any) -> Collection[Any]:
    return value if isinstance(value, list | tuple | set | frozenset) else (value,)


def clipped_logit(x: Any, epsilon: float = 1e-15) -> Array:
    """The logit, finite at 0 and 1; float `[...]` as `x`.

    logit(x) = log max(ε, x) − log max(ε, 1 − x)        x ∈ [0, 1]
    """
    x = jnp.asarray(x)
    return jnp.log(jnp.maximum(epsilon, x)) - jnp.log(jnp.maximum(epsilon, 1 - x))


def diff_transform_matrix(num_frames: int, dtype: Any = "float32") -> np.ndarray:
    """The matrix of finite differences of stacked frames, `[num_frames, num_frames]`.

        Mᵢⱼ = (−1)ⁿ⁻¹⁻ⁱ C(n−1−j, n−1−i)

                −1  0  0  0
        n = 4:   3  1  0  0
                −3 −2 −1  0
                 1  1  1  1

    Frames are on the last axis, the newest last. In X M, column n−1 is the newest
    frame, column n−2 its difference from the previous frame (velocity), column n−3 the
    second difference (acceleration), and so on.
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
    """Transforms stacked frames `[..., n]` to position, velocity, acceleration …

        X M, with M = diff_transform_matrix(n)

    The shape is unchanged, and the position is last. Returns a NumPy array for a NumPy
    array, else a JAX array.
    """
    numpy = _array_module(X)
    X = numpy.asarray(X)
    matrix = diff_transform_matrix(X.shape[-1], dtype)
    if numpy is np:
        return X.astype(matrix.dtype) @ matrix
    # By default accelerators multiply with fewer bits, and differences are small.
    precision = jax.lax.Precision.HIGHEST
    return jnp.matmul(X.astype(matrix.dtype), matrix, precision=precision)


def double_relu(arr: Any) -> Array:
    """Concatenated ReLU (CReLU) of both signs: `[..., n] -> [..., 2n]`.

        [−relu(−x), relu(x)]

    Preserves the information of its input, yet half of the outputs are zero
    (Shang et al., 2016, https://arxiv.org/abs/1603.05201).
    """
    arr = jnp.asarray(arr)
    return jnp.concatenate([-jax.nn.relu(-arr), jax.nn.relu(arr)], axis=-1)


def idx(arr: Any, axis: int = 0) -> Array:
    """The indices along an axis: `[0, 1, …, arr.shape[axis] − 1]`.

    Returns a NumPy array for a NumPy array, else a JAX array.
    """
    numpy = _array_module(arr)
    return numpy.arange(numpy.shape(arr)[axis])


def isscalar(num: Any) -> bool:
    """Whether an object is a number, or an array with a single entry."""
    if isinstance(num, np.ndarray | jax.Array):
        return num.size == 1
    if isinstance(num, np.generic):
        # NumPy scalars, and those of extension dtypes such as bfloat16.
        return jnp.issubdtype(num.dtype, jnp.number) or isinstance(num, np.bool_)
    return isinstance(num, numbers.Number)


def _array_module(arr: Any) -> ModuleType:
    return jnp if isinstance(arr, jax.Array) else np
