"""Composite distributions: products over the members of a Tuple or a Dict.

Also of the other entries of a Box in which some are constant, with equal bounds.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from rlcli import spaces
from rlcli.distributions.family import Distribution, Event, Parameters
from rlcli.types import Array, ArrayTree, Key


def composite(
    members: Sequence[Distribution] | Mapping[str, Distribution],
) -> Distribution:
    """Product of independent members: p(x) = Π pᵢ(xᵢ), with x a tuple or a dict.

    The parameters are the concatenated parameters of the members, which may be
    composites.
    """
    if not members:
        raise ValueError("expected at least one distribution, got none")
    names = tuple(members) if isinstance(members, Mapping) else None
    families = tuple(members.values() if isinstance(members, Mapping) else members)
    ends = np.cumsum([family.size for family in families])

    def pack(values: Sequence[Any]) -> ArrayTree:
        return tuple(values) if names is None else dict(zip(names, values, strict=True))

    def unpack(x: ArrayTree) -> list[Any]:
        return [x[key] for key in (range(len(families)) if names is None else names)]

    def split(parameters: Parameters) -> list[Array]:
        return list(jnp.split(parameters, ends[:-1], axis=-1))

    def draw(key: Key, batch: int) -> tuple:
        keys = jax.random.split(key, len(families))
        return tuple(family.draw(keys[i], batch) for i, family in enumerate(families))

    def call_members(function: str, *arguments: Sequence[Any]) -> list[Any]:
        return [
            getattr(family, function)(*values)
            for family, *values in zip(families, *arguments, strict=True)
        ]

    def differentiable(parameters, noise):
        pairs = call_members("differentiable", split(parameters), noise)
        return pack([x for x, _ in pairs]), _sum([log_prob for _, log_prob in pairs])

    return Distribution(
        name="composite",
        size=int(ends[-1]),
        draw=draw,
        sample=lambda parameters, noise: pack(
            call_members("sample", split(parameters), noise)
        ),
        mode=lambda parameters: pack(call_members("mode", split(parameters))),
        log_prob=lambda parameters, x: _sum(
            call_members("log_prob", split(parameters), unpack(x))
        ),
        entropy=lambda parameters: _sum(call_members("entropy", split(parameters))),
        kl=lambda parameters, other: _sum(
            call_members("kl", split(parameters), split(other))
        ),
        mean=lambda parameters: pack(call_members("mean", split(parameters))),
        differentiable=(
            differentiable
            if all(family.differentiable for family in families)
            else None
        ),
        log_scales=tuple(
            int(end - family.size + index)
            for family, end in zip(families, ends, strict=True)
            for index in family.log_scales
        ),
    )


def _sum(values: Sequence[Array]) -> Array:
    return functools.reduce(operator.add, values)


def with_constant_entries(
    space: gymnasium.spaces.Box, make: Callable[[gymnasium.spaces.Box], Distribution]
) -> Distribution:
    """A distribution over the other entries of a Box, made for a Box of these alone.

    Constant entries, with equal bounds, have no parameters, and contribute 0 to
    log-probabilities, to entropies and to divergences.
    """
    low, high = (bound.ravel() for bound in spaces.bounds(space))
    (varying,), (constant,) = np.nonzero(low != high), np.nonzero(low == high)
    if not len(constant):
        return make(space)
    rest = gymnasium.spaces.Box(low[varying], high[varying], dtype=low.dtype.type)
    inner, event = make(rest), Event(space.shape)
    order = np.argsort(np.concatenate([varying, constant]))

    def insert(x: Shaped[Array, "*batch entries"]) -> Shaped[Array, "..."]:
        numbers = jnp.asarray(low[constant], x.dtype)
        numbers = jnp.broadcast_to(numbers, (*x.shape[:-1], len(constant)))
        return event.unflatten(jnp.concatenate([x, numbers], axis=-1)[..., order])

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        return inner.log_prob(parameters, event.flatten(x)[..., varying])

    def differentiable(parameters, noise):
        assert inner.differentiable is not None
        x, density = inner.differentiable(parameters, noise)
        return insert(x), density

    return inner._replace(
        sample=lambda parameters, noise: insert(inner.sample(parameters, noise)),
        mode=lambda parameters: insert(inner.mode(parameters)),
        mean=lambda parameters: insert(inner.mean(parameters)),
        log_prob=log_prob,
        differentiable=differentiable if inner.differentiable else None,
    )
