"""Replay of whole episodes, each sampled once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Int32

from rlcli.registry import register
from rlcli.replays.rings import step_ring
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Divided,
    Key,
    Replay,
    ReplayTraits,
    Transition,
    key_as_noise,
)


class EpisodeQueue(NamedTuple):
    """Completed episodes, oldest first."""

    start: Int32[Array, "*places"]  # the time of the first step
    length: Int32[Array, "*places"]
    environment: Int32[Array, "*places"]


class EpisodeReplayState(NamedTuple):
    """The state of the replay. Episode n is stored at place n mod `places`."""

    steps: ArrayTree  # ring state
    began: Int32[Array, "B"]  # start time of the current episode
    queue: EpisodeQueue
    ended: Int32[Array, ""]  # number of completed episodes
    served: Int32[Array, ""]  # number of those already sampled


@register("replay", starts_empty="is for steps of the current policy")
def episodes(
    window: int,
    unroll: int,
    num_envs: int,
    time_limit: int | None = None,
    *,
    capacity: Divided = 50_000,
    batch_size: Divided | None = None,
    length: Count = 1_000,
) -> Replay:
    """Episode replay: returns each completed episode once, in order of completion.

    Samples are `[length + window − 1, batch_size, ...]`: an episode from its first
    step, then padding of weight 0. An update takes the `batch_size` oldest episodes (by
    default `num_envs`). If fewer are available, the other columns have weight 0; if
    there are none, there is no update. The tracer thus sees whole episodes, regardless
    of unroll boundaries, as `monte_carlo` requires. Of an episode longer than `length`,
    the last `length` steps are returned, whose returns are still exact. No episode is
    longer than the time limit of the environment, so a `length` above it has no effect.
    If the ring has overwritten the beginning of an episode, the remaining steps are
    returned.
    """
    length = min(length, time_limit or length)
    ring = step_ring(capacity, unroll, num_envs)
    ring.check_rows("episodes", capacity, length + unroll - 1, "it needs")
    size = batch_size or num_envs
    span = length + window - 1
    places = ring.rows * num_envs  # the maximum number of episodes in the ring

    def init(steps: Transition) -> EpisodeReplayState:
        zeros = jnp.zeros(places, jnp.int32)
        return EpisodeReplayState(
            ring.init(steps),
            jnp.zeros(num_envs, jnp.int32),
            EpisodeQueue(zeros, zeros, zeros),
            jnp.int32(0),
            jnp.int32(0),
        )

    def add(
        state: EpisodeReplayState, steps: Transition, count: Int[Array, ""]
    ) -> EpisodeReplayState:
        time = count * unroll + jnp.arange(unroll, dtype=jnp.int32)[:, None]
        began = jnp.where(steps.first, time, state.began)
        began = jax.lax.cummax(began)  # start time of each step's episode
        last = steps.last.reshape(-1)
        number = state.ended + jnp.cumsum(last, dtype=jnp.int32) - 1
        place = jnp.where(last, number % places, places)  # out of range: not written
        environment = jnp.broadcast_to(jnp.arange(num_envs), steps.last.shape)
        new = EpisodeQueue(began, time + 1 - began, environment)
        return EpisodeReplayState(
            ring.add(state.steps, steps, count),
            began[-1],
            jax.tree.map(
                lambda old, new: old.at[place].set(new.reshape(-1), mode="drop"),
                state.queue,
                new,
            ),
            state.ended + jnp.sum(last, dtype=jnp.int32),
            state.served,
        )

    def sample(
        state: EpisodeReplayState, count: Int[Array, ""], noise: Key
    ) -> tuple[Transition, Float[Array, "T N"], ArrayTree]:
        del noise  # the order is fixed
        # Episodes older than the last `places` have been overwritten.
        next_episode = jnp.maximum(state.served, state.ended - places)
        number = next_episode + jnp.arange(size, dtype=jnp.int32)
        queue_rows = jax.tree.map(lambda leaf: leaf[number % places], state.queue)
        end = queue_rows.start + queue_rows.length
        oldest = jnp.maximum(count * unroll - ring.rows, 0)
        start = jnp.maximum(jnp.maximum(queue_rows.start, end - length), oldest)
        steps, _ = ring.take(state.steps, start, queue_rows.environment, span)
        is_step = jnp.arange(span)[:, None] < end - start
        weight = (is_step & (number < state.ended)).astype(jnp.float32)
        return steps, weight, jnp.minimum(next_episode + size, state.ended)

    def reweigh(
        state: EpisodeReplayState, index: Int32[Array, ""], priority: Array
    ) -> EpisodeReplayState:
        return state._replace(served=index)

    return Replay(
        init,
        key_as_noise,
        add,
        sample,
        reweigh,
        traits=ReplayTraits(
            capacity,
            window=1,
            episodes=True,
            batch_size=size,
            sequence_length=length,
            is_on_policy=True,
        ),
        contents=lambda state, *rest: ring.contents(state.steps, *rest),
    )
