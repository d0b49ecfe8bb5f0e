"""Replay of sequences, for recurrent networks."""

from typing import Annotated, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Bool, Float, Int

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.replays.priorities import prioritized_replay, proportional_masses
from rlcli.replays.rings import Ring, Windows, step_ring
from rlcli.replays.uniform import uniform_replay
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Divided,
    NonNegative,
    Probability,
    Replay,
    Transition,
)

Natural = Annotated[int, Ge(0)]


class PriorityOptions(TypedDict, total=False):
    """Options of prioritized sequences; the defaults are those of R2D2."""

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
    capacity: Divided = 50_000,
    batch_size: Divided = 32,
    priorities: PriorityOptions | None = None,
) -> Replay:
    """R2D2 sequence replay with stored recurrent state (Kapturowski et al., 2019).

    A sequence begins every `length` − `overlap` steps (`overlap` is half of `length` by
    default). It has `burn_in` steps of weight 0 that only refresh the recurrent state,
    `length` steps to learn from, and `window` − 1 more that the tracer needs. The
    recurrent state is stored only at the beginning of sequences: `extras["carry"]` has
    one row. Sequences may cross the end of an episode, where the recurrent state resets
    and tracers stop (Kapturowski et al., 2019,
    https://openreview.net/forum?id=r1lyTjAqYX).

        p = η max |δ| + (1 − η) mean |δ|        m = (p + ε)^α        w = (min P / P)^β

    With `priorities` (default η 0.9, α 0.9, β 0.6, ε 1e-6) sampling is prioritized,
    otherwise uniform. The updater reports |δ| of each row, `[T, N]`; a report `[N]` is
    used as p.
    """
    overlap = length // 2 if overlap is None else overlap
    if overlap >= length:
        raise RlcliError(
            f"replay `sequences` cannot overlap {overlap} of {length} steps",
            "set `replay.overlap` to less than `replay.length`",
        )
    span = burn_in + length + window - 1
    inner = step_ring(capacity, unroll, num_envs)
    windows = Windows(inner, span, length - overlap)
    inner.check_rows("sequences", capacity, windows.min_steps, "it needs")
    windows = windows._replace(ring=_carry_ring(windows))
    options = {**_PUBLISHED_PRIORITIES, **(priorities or {})}
    eta, alpha, beta, epsilon = (
        options[k] for k in ("eta", "alpha", "beta", "epsilon")
    )
    if priorities is None:
        replay = uniform_replay(windows, capacity, batch_size, replacement=True)
    else:
        masses = proportional_masses(windows.no_window, alpha, epsilon)
        replay = prioritized_replay(windows, capacity, batch_size, masses, beta)

    def sample(
        state: ArrayTree, count: Int[Array, ""], noise: ArrayTree
    ) -> tuple[Transition, Float[Array, "T N"], ArrayTree]:
        steps, weight, index = replay.sample(state, count, noise)
        is_learning = jnp.arange(weight.shape[0]) >= burn_in
        return steps, jnp.where(is_learning[:, None], weight, 0.0), index

    def reweigh(
        state: ArrayTree, index: ArrayTree, priority: Float[Array, "*T N"]
    ) -> ArrayTree:
        if priorities is not None and priority.ndim == 2:
            learning_rows = priority[burn_in : burn_in + length]
            maximum = jnp.max(learning_rows, axis=0)
            mean = jnp.mean(learning_rows, axis=0)
            priority = eta * maximum + (1 - eta) * mean
        return replay.reweigh(state, index, priority)

    requires_recurrence = f"`burn_in: {burn_in}`" if burn_in else ""
    traits = replay.traits._replace(
        sequence_length=length, requires_recurrence=requires_recurrence
    )
    return replay._replace(sample=sample, reweigh=reweigh, traits=traits)


_PUBLISHED_PRIORITIES = {"eta": 0.9, "alpha": 0.9, "beta": 0.6, "epsilon": 1e-6}


class _CarryRingState(NamedTuple):
    """Steps without carries, and the carries at the beginning of sequences."""

    steps: ArrayTree
    # `[slots + 1, num_envs, ...]`: the last slot takes surplus writes (see
    # `Windows.starting_rows`), and is never read.
    carries: ArrayTree


def _carry_ring(windows: Windows) -> Ring:
    """The ring of `windows`, changed to store carries only where a window begins."""
    inner = windows.ring

    def split_carry(steps: Transition) -> tuple[Transition, ArrayTree]:
        extras = dict(steps.extras)
        return steps._replace(extras=extras), extras.pop("carry", ())

    def init(steps: Transition) -> _CarryRingState:
        steps, carry = split_carry(steps)
        length = windows.slots + 1
        carries = jax.tree.map(
            lambda leaf: jnp.zeros((length, *leaf.shape[1:]), leaf.dtype), carry
        )
        return _CarryRingState(inner.init(steps), carries)

    def add(
        state: _CarryRingState, steps: Transition, count: Int[Array, ""]
    ) -> _CarryRingState:
        steps, carry = split_carry(steps)
        row, slot = windows.starting_rows(count)
        carries = jax.tree.map(
            lambda old, new: old.at[slot].set(new[row]), state.carries, carry
        )
        return _CarryRingState(inner.add(state.steps, steps, count), carries)

    def take(
        state: _CarryRingState,
        start: Int[Array, "N"],
        environment: Int[Array, "N"],
        span: int,
    ) -> tuple[Transition, Bool[Array, "N"]]:
        steps, is_complete = inner.take(state.steps, start, environment, span)
        if jax.tree.leaves(state.carries):
            slot = start // windows.stride % windows.slots
            carry = jax.tree.map(lambda leaf: leaf[slot, environment], state.carries)
            carry = jax.tree.map(lambda leaf: leaf[None], carry)
            steps = steps._replace(extras={**steps.extras, "carry": carry})
        return steps, is_complete

    return inner._replace(init=init, add=add, take=take)
