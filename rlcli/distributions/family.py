"""Distribution: the common interface of all families of distributions."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from rlcli.types import Array, ArrayTree, Key

Shape = tuple[int, ...]
Parameters: TypeAlias = Float[Array, "*batch size"]  # of a family, any real numbers
PerSample: TypeAlias = Float[Array, "*batch"]  # one number per distribution


class Distribution(NamedTuple):
    """A family of distributions.

    A variable `x` is `[..., *shape]` with the shape of the space, or a tuple or dict of
    such arrays. `sample` takes noise that does not depend on parameters, so that noise
    can be drawn in advance and gradients flow through continuous samples.
    """

    name: str
    size: int  # parameters of one distribution
    draw: Callable[[Key, int], ArrayTree]  # (key, batch) -> noise
    sample: Callable[[Parameters, ArrayTree], ArrayTree]  # (parameters, noise) -> x
    mode: Callable[[Parameters], ArrayTree]
    # (parameters, x), which broadcast
    log_prob: Callable[[Parameters, ArrayTree], Float[Array, "..."]]
    entropy: Callable[[Parameters], PerSample]
    kl: Callable[[Parameters, Parameters], PerSample]  # (p, q) -> E_p[log p − log q]
    mean: Callable[[Parameters], ArrayTree]  # of x, in float32
    cross_entropy: Callable[[Parameters, Parameters], PerSample]  # E_p[−log q]
    # (parameters, scale, shift) -> parameters of `shift + scale · x`, or of its
    # projection onto the family; scale and shift broadcast against x
    affine: Callable[[Parameters, ArrayTree, ArrayTree], Parameters]
    # (parameters, noise) -> the reparameterized sample x and log p(x), with exact
    # gradients (Kingma & Welling, 2013, https://arxiv.org/abs/1312.6114); None: samples
    # have no gradients
    differentiable: (
        Callable[[Parameters, ArrayTree], tuple[ArrayTree, PerSample]] | None
    ) = None


def event_size(shape: Shape) -> int:
    """The number of entries of an array of that shape."""
    return int(np.prod(shape, dtype=int))


def unflatten_event(
    flat: Shaped[Array, "*batch size"], shape: Shape
) -> Shaped[Array, "..."]:
    """Reshapes `[..., size]` to `[..., *shape]`."""
    return flat.reshape(flat.shape[:-1] + shape)


def flatten_event(
    x: Shaped[Array, "..."], shape: Shape
) -> Shaped[Array, "*batch size"]:
    """Reshapes `[..., *shape]` to `[..., size]`."""
    return x.reshape((*x.shape[: x.ndim - len(shape)], event_size(shape)))


def broadcast_event(value: Array | float, shape: Shape) -> Shaped[Array, "*batch size"]:
    """Flattens a scale or shift that broadcasts against `[..., *shape]`."""
    value = jnp.asarray(value)
    leading = value.shape[: max(value.ndim - len(shape), 0)]
    return flatten_event(jnp.broadcast_to(value, leading + shape), shape)
