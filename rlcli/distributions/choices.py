"""Categorical distributions: over one or several discrete values, and bits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from rlcli.distributions import logits as tables
from rlcli.distributions.family import Distribution, Event, Parameters, Shape
from rlcli.types import Array, Key

NoiseSampler = Callable[[Key, tuple[int, int]], Float[Array, "B size"]]


class _Outcomes(NamedTuple):
    """The outcomes of independent categoricals: a row of n points for each."""

    # The outcomes as numbers, increasing.
    points: Float[np.ndarray, "entries n"]
    # indices [..., entries] -> numbers
    from_index: Callable[[Array], Array]
    to_index: Callable[[Array], Array]  # the inverse of `from_index`
    to_logits: Callable[[Parameters], Float[Array, "*batch entries n"]]


def categorical(actions: int, start: int = 0, dtype: Any = np.int32) -> Distribution:
    """Categorical distribution over `start … start + actions − 1`, with logits.

    Sampled by the Gumbel-max trick: `argmax(logits + g)` (Gumbel, 1954). `mean` treats
    outcomes as numbers.
    """
    distribution = multi_discrete(np.array(actions), start, dtype)
    return distribution._replace(name="categorical")


def multi_discrete(nvec: Any, start: Any = 0, dtype: Any = np.int32) -> Distribution:
    """Independent categorical distributions: xᵢ is in `startᵢ … startᵢ + nᵢ − 1`.

        p(x) = Π pᵢ(xᵢ)

    `nvec` and `start` are arrays of the shape of x; the parameters are the logits of
    the first entry, then those of the second, and so on.
    """
    shape = np.shape(nvec)
    counts = np.asarray(nvec, np.int64).ravel()
    starts = np.broadcast_to(np.asarray(start, np.int64), shape).ravel()
    first = starts.astype(np.int32)
    size, longest = int(counts.sum()), int(counts.max(initial=1))
    # One row per entry, padded to the longest: logits of the padding are −∞.
    column = np.arange(longest)
    exists = column < counts[:, None]
    begin = np.cumsum(counts) - counts
    position = np.where(exists, begin[:, None] + column, 0)

    def table(parameters: Parameters) -> Float[Array, "*batch entries n"]:
        if exists.all():
            return parameters.reshape(*parameters.shape[:-1], len(counts), longest)
        return jnp.where(exists, parameters[..., position], -jnp.inf)

    outcomes = _Outcomes(
        points=(starts[:, None] + column).astype(np.float32),
        from_index=lambda index: (first + index).astype(dtype),
        to_index=lambda x: x.astype(jnp.int32) - first,
        to_logits=table,
    )
    return _independent_categoricals(
        "multi_discrete", shape, size, jax.random.gumbel, outcomes
    )


def multi_binary(shape: Shape, dtype: Any = np.int8) -> Distribution:
    """Independent Bernoulli distributions; a parameter is the logit of 1.

        p(x) = Π σ(lᵢ)^xᵢ σ(−lᵢ)^(1 − xᵢ)

    Sampled with logistic noise: 1 if l + g > 0.
    """
    size = Event(shape).size

    def table(parameters: Parameters) -> Float[Array, "*batch entries n"]:
        return jnp.stack([jnp.zeros_like(parameters), parameters], axis=-1)

    outcomes = _Outcomes(
        points=np.tile(np.array([0.0, 1.0], np.float32), (size, 1)),
        from_index=lambda index: index.astype(dtype),
        to_index=lambda x: x.astype(jnp.int32),
        to_logits=table,
    )
    return _independent_categoricals(
        "multi_binary", shape, size, jax.random.logistic, outcomes
    )


def _independent_categoricals(
    name: str, shape: Shape, size: int, noise: NoiseSampler, outcomes: _Outcomes
) -> Distribution:
    """Builds the family. A sample is the mode of `parameters + noise`."""
    points, table, event = outcomes.points, outcomes.to_logits, Event(shape)

    def best(parameters: Parameters) -> Array:
        return event.unflatten(
            outcomes.from_index(jnp.argmax(table(parameters), axis=-1))
        )

    def log_prob(parameters: Parameters, x: Array) -> Float[Array, "..."]:
        index = outcomes.to_index(event.flatten(jnp.asarray(x)))
        return jnp.sum(tables.log_prob(table(parameters), index), axis=-1)

    def sum_over(function: Callable[..., Array]) -> Callable[..., Array]:
        return lambda *parameters: jnp.sum(function(*map(table, parameters)), axis=-1)

    def mean(parameters: Parameters) -> Array:
        return event.unflatten(tables.expectation(table(parameters), points))

    return Distribution(
        name=name,
        size=size,
        draw=lambda key, batch: noise(key, (batch, size)),
        sample=lambda parameters, noise: best(parameters + noise),
        mode=best,
        log_prob=log_prob,
        entropy=sum_over(tables.entropy),
        kl=sum_over(tables.kl),
        mean=mean,
    )
