"""Rings: where replays keep raw steps, the newest in the place of the oldest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree
from rlcli.xla.packing import Packed, Packing

NARROW = 32  # numbers: longer ones are worth a kernel of their own


class Rows(NamedTuple):
    """Steps as a ring keeps them, each packed: what is narrow is written together."""

    packed: Packed  # `[slots, ...]`
    packing: Packing  # of one step


class Ring(NamedTuple):
    """Keeps `rows` steps of each environment.

    Times count the steps of an environment from the beginning of the run. Windows may
    begin `before` steps after the oldest, and end `behind` steps before the newest.
    """

    init: Callable[[Any], ArrayTree]  # one unroll [unroll, num_envs, ...], an example
    add: Callable[[Any, Any, Array], ArrayTree]  # (state, steps, count)
    take: Callable[..., tuple[Any, Array]]
    # (state, start[N], environment[N], span) -> steps[span, N], whole[N]: bool
    rows: int
    before: int = 0
    behind: int = 0


def rows_in(capacity: int, unroll: int, num_envs: int) -> int:
    """Steps of each environment that a capacity holds: whole unrolls alone."""
    return capacity // (num_envs * unroll) * unroll


def spacious(
    replay: str, capacity: int, rows: int, unroll: int, num_envs: int, why: str
) -> None:
    """Refuses a capacity of less than `rows` steps of each environment."""
    held = rows_in(capacity, unroll, num_envs)
    if held >= rows:
        return
    least = -(-rows // unroll) * unroll * num_envs
    raise RlcliError(
        f"replay `{replay}` with a capacity of {capacity:,} holds {held:,} steps of "
        f"each environment, and {why} {rows:,} in a row",
        f"raise `replay.capacity` to at least {least:,}",
    )


def steps_ring(capacity: int, unroll: int, num_envs: int) -> Ring:
    """A ring of steps as they are: any tree of arrays `[unroll, num_envs, ...]`."""
    rows = rows_in(capacity, unroll, num_envs)
    size = unroll * num_envs  # steps of an unroll
    # A lone row is written twice, the second time over the slot that comes next, which
    # is spare: else XLA takes the write for so cheap that it repeats it inside the
    # read, and for that copies the whole ring at every step.
    copies, spare = (2, 1) if size == 1 else (1, 0)
    slots = rows // unroll + spare

    def init(steps: ArrayTree) -> Rows:
        step = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), steps)
        packing = Packing(step, NARROW)
        length = slots * size + copies - 1
        packed = jax.tree.map(
            lambda x: jnp.zeros((length, *x.shape), x.dtype),
            jax.eval_shape(packing.pack, step),
        )
        return Rows(packed, packing)

    def add(ring: Rows, steps: ArrayTree, count: Array) -> Rows:
        head = count % slots * size

        def flat(leaf: Array) -> Array:
            leaf = leaf.reshape((size, *leaf.shape[2:]))
            return jnp.concatenate([leaf] * copies)

        new = jax.vmap(ring.packing.pack)(jax.tree.map(flat, steps))

        def written(old: Array, new: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(old, new, head, 0)

        return ring._replace(packed=jax.tree.map(written, ring.packed, new))

    def take(
        ring: Rows, start: Array, environment: Array, span: int
    ) -> tuple[ArrayTree, Array]:
        times = start + jnp.arange(span, dtype=jnp.int32)[:, None]
        where = times % (slots * unroll) * num_envs + environment
        taken = jax.tree.map(lambda leaf: leaf[where], ring.packed)
        steps = jax.vmap(jax.vmap(ring.packing.unpack))(taken)
        return steps, jnp.ones(start.shape, bool)

    return Ring(init, add, take, rows)
