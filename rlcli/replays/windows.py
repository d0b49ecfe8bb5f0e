"""Windows: which stretches of a ring may be handed out, as time goes on.

A window is `span` consecutive steps of one environment, and begins every `stride` of
them. It comes when its last step does, and is gone when its first is overwritten.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rlcli.replays.rings import Ring
from rlcli.types import Array


class Windows(NamedTuple):
    """The windows of a ring; `count` is how many unrolls it was given."""

    ring: Ring
    unroll: int
    span: int
    stride: int = 1

    @property
    def min_steps(self) -> int:
        """Steps of each environment with which there is one for sure."""
        return (
            self.ring.start_margin + self.span + self.ring.end_margin + self.stride - 1
        )

    @property
    def slots(self) -> int:
        """As many as there may be in one environment at once, and one more."""
        return self.ring.rows // self.stride + 2

    def oldest_start(self, count: Array) -> Array:
        """The time before which no window may begin."""
        after = (count * self.unroll) - self.ring.rows
        # At time 0 an episode begins: there is nothing before it that one could need.
        return jnp.where(after > 0, after + self.ring.start_margin, 0)

    def newest_start(self, count: Array) -> Array:
        """The time after which none may begin; negative while there is none."""
        return count * self.unroll - self.ring.end_margin - self.span

    def available(self, count: Array) -> tuple[Array, Array]:
        """When the oldest begins, and how many there are, at least one."""
        first = self._next_start(self.oldest_start(count))
        number = (self.newest_start(count) - first) // self.stride + 1
        return first, jnp.maximum(number, 1)

    def overwritten_slots(self, count: Array) -> Array:
        """Slots of the windows that unroll number `count` overwrites; `slots`: none."""
        first = self._next_start(self.oldest_start(count))
        starts = first + self._start_offsets(self.unroll + self.ring.start_margin)
        return self._slot(starts, starts < self.oldest_start(count + 1))

    def completed_slots(self, count: Array) -> Array:
        """Slots of the windows that unroll number `count` completes; `slots`: none."""
        first = self._next_start(self.newest_start(count) + 1)
        starts = first + self._start_offsets(self.unroll)
        is_standing = starts <= self.newest_start(count + 1)
        return self._slot(
            starts, is_standing & (starts >= self.oldest_start(count + 1))
        )

    def starting_rows(self, count: Array) -> tuple[Array, Array]:
        """Rows of unroll number `count` at which one begins, and slots; `slots`: none.

        A row without a window is some row.
        """
        start_time = count * self.unroll
        starts = self._next_start(start_time) + self._start_offsets(self.unroll)
        is_starting = starts < start_time + self.unroll
        return jnp.where(is_starting, starts - start_time, 0), self._slot(
            starts, is_starting
        )

    def start_time(self, slot: Array, count: Array) -> Array:
        """The time at which the standing window in a slot begins."""
        first = self._next_start(self.oldest_start(count)) // self.stride
        return (first + (slot - first) % self.slots) * self.stride

    def _next_start(self, time: Array) -> Array:
        return -(-time // self.stride) * self.stride

    def _start_offsets(self, length: int) -> Array:
        """Where windows begin in so many steps, if one does in the first."""
        return jnp.arange(0, length, self.stride, dtype=jnp.int32)

    def _slot(self, start: Array, is_valid: Array) -> Array:
        return jnp.where(is_valid, start // self.stride % self.slots, self.slots)
