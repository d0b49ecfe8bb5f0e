"""Distribution: the common interface of all families of distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, ArrayTree, Key

Shape = tuple[int, ...]


class Distribution(NamedTuple):
    """A family of distributions; `parameters` are `[..., size]`, any real numbers.

    A variable `x` is `[..., *shape]` with the shape of the space, or a tuple or dict of
    such arrays. `sample` takes noise that does not depend on parameters, so that noise
    can be drawn in advance and gradients flow through continuous samples.
    """

    name: str
    size: int  # parameters of one distribution
    draw: Callable[[Key, int], ArrayTree]  # (key, batch) -> noise
    sample: Callable[[Array, ArrayTree], ArrayTree]  # (parameters, noise) -> x
    mode: Callable[[Array], ArrayTree]
    log_prob: Callable[[Array, ArrayTree], Array]  # (parameters, x) -> [...]
    entropy: Callable[[Array], Array]
    kl: Callable[[Array, Array], Array]  # (p, q) -> E_p[log p − log q]
    mean: Callable[[Array], ArrayTree]  # of x, in float32
    cross_entropy: Callable[[Array, Array], Array]  # E_p[−log q]
    # (parameters, scale, shift) -> parameters of `shift + scale · x`, or of its
    # projection onto the family; scale and shift broadcast against x
    affine: Callable[[Array, ArrayTree, ArrayTree], Array]
    # (parameters, noise) -> the reparameterized sample x and log p(x), with exact
    # gradients (Kingma & Welling, 2013, https://arxiv.org/abs/1312.6114); None: samples
    # have no gradients
    differentiable: Callable[[Array, ArrayTree], tuple[ArrayTree, Array]] | None = None


def event_size(shape: Shape) -> int:
    """The number of entries of an array of that shape."""
    return int(np.prod(shape, dtype=int))


def unflatten_event(flat: Array, shape: Shape) -> Array:
    """Reshapes `[..., size]` to `[..., *shape]`."""
    return flat.reshape(flat.shape[:-1] + shape)


def flatten_event(x: Array, shape: Shape) -> Array:
    """Reshapes `[..., *shape]` to `[..., size]`."""
    return x.reshape((*x.shape[: x.ndim - len(shape)], event_size(shape)))


def broadcast_event(value: Array, shape: Shape) -> Array:
    """Flattens a scale or shift that broadcasts against `[..., *shape]`."""
    value = jnp.asarray(value)
    leading = value.shape[: max(value.ndim - len(shape), 0)]
    return flatten_event(jnp.broadcast_to(value, leading + shape), shape)
