"""Wrapping: functions that transform functions."""

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Wrapped = TypeVar("Wrapped")
Axes = int | None | Sequence[int | None]


def docstring(obj: Any) -> Callable[[Wrapped], Wrapped]:
    """Returns a decorator that gives a function the docstring of `obj`.

    @docstring(f)
    def g(x): ...  # g.__doc__ == f.__doc__
    """

    def decorate(function: Wrapped) -> Wrapped:
        function.__doc__ = obj.__doc__
        return function

    return decorate


class JittedFunc:
    """A compiled function that can be pickled, the result of `jit`."""

    def __init__(
        self,
        func: Callable[..., Any],
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
    ) -> None:
        functools.update_wrapper(self, func)
        self.func = func
        self.static_argnums = static_argnums
        self.donate_argnums = donate_argnums
        self._compiled = jax.jit(
            func, static_argnums=static_argnums, donate_argnums=donate_argnums
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, compiled at the first call with these shapes."""
        return self._compiled(*args, **kwargs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.func!r})"

    def __reduce__(self) -> Any:
        # As a decorator it replaces its function, so it is pickled by the same name.
        name = getattr(self.func, "__qualname__", "")
        module = sys.modules.get(getattr(self.func, "__module__", ""))
        if inspect.getattr_static(module, name, None) is self:
            return name
        return JittedFunc, (self.func, self.static_argnums, self.donate_argnums)


def jit(
    func: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
) -> JittedFunc:
    """`jax.jit` on the default device, as a function that can be pickled.

    The pickle contains the name of `func`, as for every Python function. The function
    is compiled again after loading, for the device of that process.

    Args:
        func: the function to compile.
        static_argnums: the arguments whose values are compile-time constants.
        donate_argnums: the arguments whose memory may be reused for results.
    """
    return JittedFunc(func, static_argnums, donate_argnums)


def unvectorize(
    f: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0
) -> Callable[..., Any]:
    """Makes a function of a single instance from one of a batch: inverts `jax.vmap`.

    Each argument gets a batch axis of size 1, and each output loses it. `in_axes` is
    the position of that axis: one for all arguments, or one per argument; None leaves
    an argument unchanged. `out_axes` is the same for the entries of a tuple that `f`
    returns. Arguments may be pytrees. Keyword arguments are passed unchanged.

        f_single = unvectorize(f_batch, in_axes=(None, None, 0))  # of a Haiku apply
        y = f_single(params, key, x)  # x and y have no batch axis
    """

    @functools.wraps(f)
    def single_function(*args: Any, **kwargs: Any) -> Any:
        batched_args = _map_axes(jnp.expand_dims, args, in_axes, "in_axes")
        outputs = f(*batched_args, **kwargs)
        if isinstance(out_axes, int | None):
            return _map_leaves(jnp.squeeze, outputs, out_axes)
        if not isinstance(outputs, tuple):
            raise TypeError(
                f"expected one number as out_axes for a single output, got {out_axes}"
            )
        unbatched = _map_axes(jnp.squeeze, outputs, out_axes, "out_axes")
        make = getattr(outputs, "_make", tuple)  # keeps the type of a NamedTuple
        return make(unbatched)

    return single_function


def _map_axes(
    move: Callable[..., Any], values: tuple[Any, ...], axes: Axes, name: str
) -> tuple[Any, ...]:
    """Applies `move(leaf, axis)` to the leaves of each value, with its own axis."""
    if isinstance(axes, int | None):
        axes = (axes,) * len(values)
    if len(axes) != len(values):
        raise ValueError(f"expected {len(values)} {name}, one per value, got {axes}")
    return tuple(
        _map_leaves(move, value, axis) for value, axis in zip(values, axes, strict=True)
    )


def _map_leaves(move: Callable[..., Any], value: Any, axis: int | None) -> Any:
    if axis is None:
        return value
    return jax.tree.map(lambda leaf: move(jnp.asarray(leaf), axis), value)
