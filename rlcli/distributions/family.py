"""Families of distributions: what each of them can be asked, whatever it is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, ArrayTree, Key

Shape = tuple[int, ...]


class Distribution(NamedTuple):
    """A family of distributions; `parameters` are `[..., size]`, any real numbers.

    A variable `x` is `[..., *shape]` of the space that the family is over, or a tuple
    or dict of such arrays. `sample` is a function of noise that knows no parameter, so
    that noise may be drawn ahead, and gradients reach continuous samples.
    """

    name: str
    size: int  # parameters of one distribution
    draw: Callable[[Key, int], ArrayTree]  # (key, batch) -> noise
    sample: Callable[[Array, ArrayTree], ArrayTree]  # (parameters, noise) -> x
    mode: Callable[[Array], ArrayTree]
    log_prob: Callable[[Array, ArrayTree], Array]  # (parameters, x) -> [...]
    entropy: Callable[[Array], Array]
    kl: Callable[[Array, Array], Array]  # E_p[log p − log q], of the first (p)
    mean: Callable[[Array], ArrayTree]  # of x as a number: float32
    cross_entropy: Callable[[Array, Array], Array]  # E_p[−log q]
    # (parameters, scale, shift) -> parameters of `shift + scale · x`, or of what comes
    # nearest to it in the family; scale and shift broadcast against x
    affine: Callable[[Array, ArrayTree, ArrayTree], Array]
    # (parameters, noise) -> the sample x and log p(x), whose gradients along the
    # parameters are exact (Kingma & Welling, 2013, https://arxiv.org/abs/1312.6114);
    # None: samples have no gradients
    differentiable: Callable[[Array, ArrayTree], tuple[ArrayTree, Array]] | None = None


def event_size(shape: Shape) -> int:
    """How many numbers an array of that shape has."""
    return int(np.prod(shape, dtype=int))


def unflatten_event(flat: Array, shape: Shape) -> Array:
    """`[..., size]` as `[..., *shape]`."""
    return flat.reshape(flat.shape[:-1] + shape)


def flatten_event(x: Array, shape: Shape) -> Array:
    """`[..., *shape]` as `[..., size]`."""
    return x.reshape((*x.shape[: x.ndim - len(shape)], event_size(shape)))


def broadcast_event(value: Array, shape: Shape) -> Array:
    """A scale or shift that broadcasts against `[..., *shape]`, as `[..., size]`."""
    value = jnp.asarray(value)
    leading = value.shape[: max(value.ndim - len(shape), 0)]
    return flatten_event(jnp.broadcast_to(value, leading + shape), shape)
