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
    ends = np.cumsum([each.size for each in families])

    def together(values: Sequence[Any]) -> ArrayTree:
        return tuple(values) if names is None else dict(zip(names, values, strict=True))

    def apart(x: ArrayTree) -> list[Any]:
        return [x[each] for each in (range(len(families)) if names is None else names)]

    def cut(parameters: Array) -> list[Array]:
        return jnp.split(parameters, ends[:-1], axis=-1)

    def draw(key: Key, batch: int) -> tuple:
        keys = jax.random.split(key, len(families))
        return tuple(each.draw(keys[i], batch) for i, each in enumerate(families))

    def each_of(function: str, *arguments: Sequence[Any]) -> list[Any]:
        return [
            getattr(family, function)(*given)
            for family, *given in zip(families, *arguments, strict=True)
        ]

    def differentiable(parameters: Array, noise: tuple) -> tuple[ArrayTree, Array]:
        each = each_of("differentiable", cut(parameters), noise)
        return together([x for x, _ in each]), sum(log_prob for _, log_prob in each)

    def affine(parameters: Array, scale: ArrayTree, shift: ArrayTree) -> Array:
        scales, shifts = (
            apart(each) if isinstance(each, tuple | dict) else [each] * len(families)
            for each in (scale, shift)
        )
        moved = each_of("affine", cut(parameters), scales, shifts)
        return jnp.concatenate(moved, axis=-1)

    return Distribution(
        name="composite",
        size=int(ends[-1]),
        draw=draw,
        sample=lambda each, noise: together(each_of("sample", cut(each), noise)),
        mode=lambda each: together(each_of("mode", cut(each))),
        log_prob=lambda each, x: sum(each_of("log_prob", cut(each), apart(x))),
        entropy=lambda each: sum(each_of("entropy", cut(each))),
        kl=lambda each, other: sum(each_of("kl", cut(each), cut(other))),
        mean=lambda each: together(each_of("mean", cut(each))),
        cross_entropy=lambda each, other: sum(
            each_of("cross_entropy", cut(each), cut(other))
        ),
        affine=affine,
        differentiable=(
            differentiable if all(each.differentiable for each in families) else None
        ),
    )
