"""Uniform experience replay."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Key, Replay, Transition


@register("replay")
def uniform(
    window: int, *, capacity: Count = 50_000, batch_size: Count = 32
) -> Replay:
    """A ring of the newest `capacity` steps, drawn with equal chances (Lin, 1992).

    Stores raw steps and draws `window` consecutive ones, none over the head of the
    ring: `sample` gives `[window, batch_size, ...]`, with replacement.
    """

    def init(unroll: Transition) -> Transition:
        length, environments = unroll.reward.shape
        unrolls = capacity // environments // length
        if unrolls * length < window:
            raise RlcliError(
                f"replay `uniform` holds {unrolls * length} steps of each environment, "
                f"and the tracer's window is {window}",
                f"raise `replay.capacity` to at least {window * environments * length}",
            )
        return jax.tree.map(
            lambda leaf: jnp.zeros((unrolls, *leaf.shape), leaf.dtype), unroll
        )

    def add(ring: Transition, steps: Transition, count: Array) -> Transition:
        head = count % ring.reward.shape[0]
        return jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, head, 0),
            ring,
            steps,
        )

    def draw(key: Key) -> Array:
        return jax.random.bits(key, (batch_size,))

    def sample(
        ring: Transition, count: Array, noise: Array
    ) -> tuple[Transition, Array, ArrayTree]:
        unrolls, length, environments = ring.reward.shape
        filled = jnp.minimum(count, unrolls)
        oldest = (count - filled) % unrolls * length
        # Remainders of 32 random bits: off by at most (number of starts) / 2³².
        starts = jnp.maximum(filled * length - window + 1, 1) * environments
        index = (noise % starts.astype(jnp.uint32)).astype(jnp.int32)
        first, environment = oldest + index // environments, index % environments
        row = (first + jnp.arange(window)[:, None]) % (unrolls * length)
        where = (row // length, row % length, environment)
        steps = jax.tree.map(lambda leaf: leaf[where], ring)
        return steps, jnp.ones(row.shape), index

    def reweigh(ring: Transition, index: ArrayTree, priority: Array) -> Transition:
        del index, priority  # every step keeps its chance
        return ring

    return Replay(init, draw, add, sample, reweigh, capacity)
