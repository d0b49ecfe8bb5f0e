"""Boxes with constant entries, whose lower and upper bounds are equal."""

from collections.abc import Callable

import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from rlcli import spaces
from rlcli.distributions.family import (
    Distribution,
    Parameters,
    PerSample,
    broadcast_event,
    flatten_event,
    unflatten_event,
)
from rlcli.types import Array, ArrayTree


def has_constant_entries(space: gymnasium.spaces.Box) -> bool:
    """Whether some entries have equal bounds."""
    low, high = spaces.bounds(space)
    return bool(np.any(low == high))


def with_constant_entries(
    space: gymnasium.spaces.Box, make: Callable[[gymnasium.spaces.Box], Distribution]
) -> Distribution:
    """A distribution over the other entries of a Box, made for a Box of these alone.

    Constant entries have no parameters, and contribute 0 to log-probabilities, to
    entropies and to divergences.
    """
    low, high = (bound.ravel() for bound in spaces.bounds(space))
    (varying,) = np.nonzero(low != high)
    if not len(varying):
        raise TypeError(f"expected a Box with an entry that can vary, got {space}")
    rest = gymnasium.spaces.Box(low[varying], high[varying], dtype=low.dtype.type)
    inner, shape = make(rest), space.shape

    def insert(x: Shaped[Array, "*batch entries"]) -> Shaped[Array, "..."]:
        full = jnp.broadcast_to(jnp.asarray(low, x.dtype), (*x.shape[:-1], len(low)))
        return unflatten_event(full.at[..., varying].set(x), shape)

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        return inner.log_prob(parameters, flatten_event(x, shape)[..., varying])

    def differentiable(
        parameters: Parameters, noise: ArrayTree
    ) -> tuple[Array, PerSample]:
        assert inner.differentiable is not None
        x, density = inner.differentiable(parameters, noise)
        return insert(x), density

    def affine(
        parameters: Parameters, scale: Array | float, shift: Array | float
    ) -> Parameters:
        scale, shift = (
            broadcast_event(value, shape)[..., varying] for value in (scale, shift)
        )
        return inner.affine(parameters, scale, shift)

    return inner._replace(
        sample=lambda parameters, noise: insert(inner.sample(parameters, noise)),
        mode=lambda parameters: insert(inner.mode(parameters)),
        mean=lambda parameters: insert(inner.mean(parameters)),
        log_prob=log_prob,
        affine=affine,
        differentiable=differentiable if inner.differentiable else None,
    )
