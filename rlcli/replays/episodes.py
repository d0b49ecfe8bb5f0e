"""Replay of whole episodes, each of which is handed out once."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlcli.registry import register
from rlcli.replays.rings import check_capacity, ring_rows, step_ring
from rlcli.types import Array, ArrayTree, Count, Key, Replay, Transition, key_as_noise


class EpisodeQueue(NamedTuple):
    """Episodes that have ended, oldest first."""

    start: Array  # int32 `[places]`: the time at which one begins
    length: Array  # int32 `[places]`
    environment: Array  # int32 `[places]`


class EpisodeReplayState(NamedTuple):
    """The state of the replay. The n-th episode has place n mod places."""

    steps: ArrayTree  # of the ring
    began: Array  # int32 `[num_envs]`: when the episode under way did
    queue: EpisodeQueue
    ended: Array  # int32: episodes that ended so far
    served: Array  # int32: of them, those that were handed out


@register("replay")
def episodes(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    capacity: Count = 50_000,
    batch_size: Count | None = None,
    length: Count = 1_000,
) -> Replay:
    """Hands out each finished episode once, in the order in which they ended.

    `[length + window − 1, batch_size, ...]`: an episode from its first step on, and
    behind its end padding that weighs 0. An update takes the `batch_size` (if absent,
    as many as there are environments) that have waited longest; where fewer wait the
    other columns weigh 0, and with none at all there is no update. So a tracer sees
    whole episodes, wherever unrolls begin and end: what `monte_carlo` needs. Of an
    episode longer than `length` the last `length` steps are handed out, whose returns
    are exact as well; of one that waited until the ring overwrote its beginning, what
    is left.
    """
    rows = ring_rows(capacity, unroll, num_envs)
    check_capacity(
        "episodes", capacity, length + unroll - 1, unroll, num_envs, "it needs"
    )
    ring = step_ring(capacity, unroll, num_envs)
    size = batch_size or num_envs
    span = length + window - 1
    places = rows * num_envs  # no more episodes than that fit into the ring

    def init(steps: Transition) -> EpisodeReplayState:
        nothing = jnp.zeros(places, jnp.int32)
        return EpisodeReplayState(
            ring.init(steps),
            jnp.zeros(num_envs, jnp.int32),
            EpisodeQueue(nothing, nothing, nothing),
            jnp.int32(0),
            jnp.int32(0),
        )

    def add(
        state: EpisodeReplayState, steps: Transition, count: Array
    ) -> EpisodeReplayState:
        time = count * unroll + jnp.arange(unroll, dtype=jnp.int32)[:, None]
        began = jnp.where(steps.first, time, state.began)
        began = jax.lax.cummax(began)  # of the episode that each step is of
        last = steps.last.reshape(-1)
        number = state.ended + jnp.cumsum(last, dtype=jnp.int32) - 1
        place = jnp.where(last, number % places, places)  # outside: not written
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
        state: EpisodeReplayState, count: Array, noise: Key
    ) -> tuple[Transition, Array, ArrayTree]:
        del noise  # they come in their order
        # What more than `places` episodes have followed was overwritten long ago.
        next_one = jnp.maximum(state.served, state.ended - places)
        number = next_one + jnp.arange(size, dtype=jnp.int32)
        queue_rows = jax.tree.map(lambda leaf: leaf[number % places], state.queue)
        end = queue_rows.start + queue_rows.length
        oldest = jnp.maximum(count * unroll - rows, 0)
        start = jnp.maximum(jnp.maximum(queue_rows.start, end - length), oldest)
        steps, _ = ring.take(state.steps, start, queue_rows.environment, span)
        is_step = jnp.arange(span)[:, None] < end - start
        weight = (is_step & (number < state.ended)).astype(jnp.float32)
        return steps, weight, jnp.minimum(next_one + size, state.ended)

    def reweigh(
        state: EpisodeReplayState, index: Array, priority: Array
    ) -> EpisodeReplayState:
        del priority
        return state._replace(served=index)

    return Replay(init, key_as_noise, add, sample, reweigh, capacity, 1, episodes=True)
