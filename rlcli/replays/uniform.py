"""Uniform experience replay."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Key, Replay, Transition


@register("replay")
def uniform(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    capacity: Count = 50_000,
    batch_size: Count = 32,
) -> Replay:
    """A ring of the newest `capacity` steps, drawn with equal chances (Lin, 1992).

    Stores raw steps, an unroll at a time, and draws `window` consecutive ones, none
    over the head of the ring: `sample` gives `[window, batch_size, ...]`, with
    replacement.
    """
    unrolls = capacity // (num_envs * unroll)  # that the ring holds
    rows = unrolls * unroll  # of each environment
    if rows < window:
        least = -(-window // unroll) * unroll * num_envs
        raise RlcliError(
            f"replay `uniform` with a capacity of {capacity:,} holds {rows:,} steps of "
            f"each environment, and the tracer needs {window:,} in a row",
            f"raise `replay.capacity` to at least {least:,}",
        )

    size = unroll * num_envs  # rows of an unroll
    # A lone row is written twice, the second time over the slot that comes next, which
    # is spare: else XLA takes the write for so cheap that it repeats it inside the
    # read, and for that copies the whole ring at every step.
    copies, slots = (2, unrolls + 1) if size == 1 else (1, unrolls)

    def init(steps: Transition) -> Transition:
        length = slots * size + copies - 1
        return jax.tree.map(
            lambda leaf: jnp.zeros((length, *leaf.shape[2:]), leaf.dtype), steps
        )

    def add(ring: Transition, steps: Transition, count: Array) -> Transition:
        head = count % slots * size

        def written(old: Array, new: Array) -> Array:
            new = new.reshape((size, *new.shape[2:]))
            new = jnp.concatenate([new] * copies)
            return jax.lax.dynamic_update_slice_in_dim(old, new, head, 0)

        return jax.tree.map(written, ring, steps)

    def draw(key: Key) -> Array:
        return jax.random.bits(key, (batch_size,))

    def sample(
        ring: Transition, count: Array, noise: Array
    ) -> tuple[Transition, Array, ArrayTree]:
        filled = jnp.minimum(count, unrolls)
        oldest = (count - filled) % slots * unroll
        # Remainders of 32 random bits: off by at most (number of starts) / 2³².
        starts = jnp.maximum(filled * unroll - window + 1, 1) * num_envs
        index = (noise % starts.astype(jnp.uint32)).astype(jnp.int32)
        later = jnp.arange(window, dtype=jnp.int32)[:, None]
        where = (index + (oldest + later) * num_envs) % (slots * size)
        steps = jax.tree.map(lambda leaf: leaf[where], ring)
        return steps, jnp.ones(where.shape), index

    def reweigh(ring: Transition, index: ArrayTree, priority: Array) -> Transition:
        del index, priority  # every step keeps its chance
        return ring

    return Replay(init, draw, add, sample, reweigh, capacity)
