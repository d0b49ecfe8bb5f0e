"""Composite distributions: independent ones over the members of a Tuple or a Dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.distributions.family import Distribution
from rlcli.types import Array, ArrayTree, Key


def composite(
    members: Sequence[Distribution] | Mapping[str, Distribution],
) -> Distribution:
    """The product of its members: p(x) = Π pᵢ(xᵢ), with x a tuple, or a dict.

    The parameters are those of the first member, then those of the second, and so on;
    a member may be a composite itself. `affine` takes scales and shifts in the
    structure of x, or one number for all.
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

    def cut(parameters: Array) -> list[Array]:
        return jnp.split(parameters, ends[:-1], axis=-1)

    def draw(key: Key, batch: int) -> tuple:
        keys = jax.random.split(key, len(families))
        return tuple(family.draw(keys[i], batch) for i, family in enumerate(families))

    def each_of(function: str, *arguments: Sequence[Any]) -> list[Any]:
        return [
            getattr(family, function)(*values)
            for family, *values in zip(families, *arguments, strict=True)
        ]

    def differentiable(parameters: Array, noise: tuple) -> tuple[ArrayTree, Array]:
        pairs = each_of("differentiable", cut(parameters), noise)
        return pack([x for x, _ in pairs]), sum(log_prob for _, log_prob in pairs)

    def affine(parameters: Array, scale: ArrayTree, shift: ArrayTree) -> Array:
        scales, shifts = (
            unpack(value)
            if isinstance(value, tuple | dict)
            else [value] * len(families)
            for value in (scale, shift)
        )
        new_members = each_of("affine", cut(parameters), scales, shifts)
        return jnp.concatenate(new_members, axis=-1)

    return Distribution(
        name="composite",
        size=int(ends[-1]),
        draw=draw,
        sample=lambda parameters, noise: pack(
            each_of("sample", cut(parameters), noise)
        ),
        mode=lambda parameters: pack(each_of("mode", cut(parameters))),
        log_prob=lambda parameters, x: sum(
            each_of("log_prob", cut(parameters), unpack(x))
        ),
        entropy=lambda parameters: sum(each_of("entropy", cut(parameters))),
        kl=lambda parameters, other: sum(each_of("kl", cut(parameters), cut(other))),
        mean=lambda parameters: pack(each_of("mean", cut(parameters))),
        cross_entropy=lambda parameters, other: sum(
            each_of("cross_entropy", cut(parameters), cut(other))
        ),
        affine=affine,
        differentiable=(
            differentiable
            if all(family.differentiable for family in families)
            else None
        ),
    )
