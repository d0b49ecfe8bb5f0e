"""Replay of sequences, for networks that remember."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from annotated_types import Ge

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.replays.priorities import leaves_of, proportional, weighed
from rlcli.replays.rings import Ring, spacious, steps_ring
from rlcli.replays.uniform import evenly
from rlcli.replays.windows import Windows
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    NonNegative,
    Probability,
    Replay,
    Transition,
)

Natural = Annotated[int, Ge(0)]


class Priorities(TypedDict, total=False):
    """How sequences are preferred; what is left out is as in the paper."""

    eta: Probability
    alpha: NonNegative
    beta: Probability
    epsilon: NonNegative


@register("replay")
def sequences(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    length: Count = 40,
    burn_in: Natural = 0,
    overlap: Natural | None = None,
    capacity: Count = 50_000,
    batch_size: Count = 32,
    priorities: Priorities | None = None,
) -> Replay:
    """Draws sequences, with the memory they began with (Kapturowski et al., 2019).

    Every `length` − `overlap` steps (half of `length` if absent) one begins: `burn_in`
    steps that weigh 0 and only refresh the memory, `length` steps to learn from, and
    the `window` − 1 behind that the tracer needs for them. The memory is stored where
    sequences begin, and nowhere else: `extras["carry"]` has one row. They may go over
    the end of an episode, where networks forget and tracers stop
    (https://openreview.net/forum?id=r1lyTjAqYX).

        p = η max |δ| + (1 − η) mean |δ|        m = (p + ε)^α        w = (min P / P)^β

    With `priorities` (η 0.9, α 0.9, β 0.6, ε 1e-6), else with equal chances. The
    updater has to report p of each row, `[T, N]`; if it reports `[N]`, that is p.
    """
    overlap = length // 2 if overlap is None else overlap
    if overlap >= length:
        raise RlcliError(
            f"replay `sequences` cannot overlap {overlap} of {length} steps",
            "choose `replay.overlap` less than `replay.length`",
        )
    span = burn_in + length + window - 1
    inner = steps_ring(capacity, unroll, num_envs)
    windows = Windows(inner, unroll, span, length - overlap)
    spacious("sequences", capacity, windows.least, unroll, num_envs, "it needs")
    windows = windows._replace(ring=_carrying(windows))
    if priorities is None:
        replay = evenly(windows, num_envs, capacity, batch_size, replacement=True)
    else:
        chosen = {**_AS_PUBLISHED, **priorities}
        leaves = leaves_of(windows, num_envs)
        masses = proportional(leaves, chosen["alpha"], chosen["epsilon"])
        beta = chosen["beta"]
        replay = weighed(windows, num_envs, capacity, batch_size, masses, beta)
        replay = _mixing(replay, chosen["eta"], burn_in, length)
    return _refreshing(replay, burn_in)


_AS_PUBLISHED = {"eta": 0.9, "alpha": 0.9, "beta": 0.6, "epsilon": 1e-6}


class _Carrying(NamedTuple):
    """Steps without memory, and the memory at the beginnings of sequences."""

    steps: ArrayTree
    carries: ArrayTree  # `[slots + 1, num_envs, ...]`: the last one is for the others


def _carrying(windows: Windows) -> Ring:
    """The windows' ring, with memory stored where one begins, and nowhere else."""
    inner = windows.ring

    def parted(steps: Transition) -> tuple[Transition, ArrayTree]:
        extras = dict(steps.extras)
        return steps._replace(extras=extras), extras.pop("carry", ())

    def init(steps: Transition) -> _Carrying:
        steps, carry = parted(steps)
        shape = (windows.slots + 1,)
        carries = jax.tree.map(
            lambda leaf: jnp.zeros((*shape, *leaf.shape[1:]), leaf.dtype), carry
        )
        return _Carrying(inner.init(steps), carries)

    def add(state: _Carrying, steps: Transition, count: Array) -> _Carrying:
        steps, carry = parted(steps)
        row, slot = windows.begun(count)
        carries = jax.tree.map(
            lambda old, new: old.at[slot].set(new[row]), state.carries, carry
        )
        return _Carrying(inner.add(state.steps, steps, count), carries)

    def take(
        state: _Carrying, start: Array, environment: Array, span: int
    ) -> tuple[Transition, Array]:
        steps, whole = inner.take(state.steps, start, environment, span)
        if jax.tree.leaves(state.carries):
            slot = start // windows.stride % windows.slots
            carry = jax.tree.map(lambda leaf: leaf[slot, environment], state.carries)
            carry = jax.tree.map(lambda leaf: leaf[None], carry)
            steps = steps._replace(extras={**steps.extras, "carry": carry})
        return steps, whole

    return inner._replace(init=init, add=add, take=take)


def _refreshing(replay: Replay, burn_in: int) -> Replay:
    """The same, whose first `burn_in` steps weigh 0."""

    def sample(
        state: ArrayTree, count: Array, noise: ArrayTree
    ) -> tuple[Transition, Array, ArrayTree]:
        steps, weight, index = replay.sample(state, count, noise)
        learnt = jnp.arange(weight.shape[0]) >= burn_in
        return steps, jnp.where(learnt[:, None], weight, 0.0), index

    return replay._replace(sample=sample)


def _mixing(replay: Replay, eta: float, burn_in: int, length: int) -> Replay:
    """The same, with a priority mixed of those of the rows that are learnt from."""

    def reweigh(state: ArrayTree, index: ArrayTree, priority: Array) -> ArrayTree:
        if priority.ndim == 2:
            learnt = priority[burn_in : burn_in + length]
            most, mean = jnp.max(learnt, axis=0), jnp.mean(learnt, axis=0)
            priority = eta * most + (1 - eta) * mean
        return replay.reweigh(state, index, priority)

    return replay._replace(reweigh=reweigh)
