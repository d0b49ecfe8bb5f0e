"""Windows: the stretches of a ring buffer that can be sampled at a given time.

A window is `span` consecutive steps of one environment; one begins every `stride`
steps. It is available from its last step until its first step is overwritten.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Int

from rlcli.replays.rings import Ring
from rlcli.types import Array


class Windows(NamedTuple):
    """The windows of a ring; `count` is the number of unrolls added so far."""

    ring: Ring
    unroll: int
    span: int
    stride: int = 1

    @property
    def min_steps(self) -> int:
        """Steps of each environment that guarantee at least one window."""
        return (
            self.ring.start_margin + self.span + self.ring.end_margin + self.stride - 1
        )

    @property
    def slots(self) -> int:
        """The maximum number of simultaneous windows per environment, plus one."""
        return self.ring.rows // self.stride + 2

    def oldest_start(self, count: Int[Array, ""]) -> Int[Array, ""]:
        """The earliest time at which a window may begin."""
        oldest_step = (count * self.unroll) - self.ring.rows
        # At time 0 an episode begins, so no window needs earlier steps.
        return jnp.where(oldest_step > 0, oldest_step + self.ring.start_margin, 0)

    def newest_start(self, count: Int[Array, ""]) -> Int[Array, ""]:
        """The latest time at which a window may begin; negative if there is none."""
        return count * self.unroll - self.ring.end_margin - self.span

    def available(self, count: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The start of the oldest window, and the number of windows, at least 1."""
        first = self._next_start(self.oldest_start(count))
        number = (self.newest_start(count) - first) // self.stride + 1
        return first, jnp.maximum(number, 1)

    def overwritten_slots(self, count: Int[Array, ""]) -> Int[Array, "slots"]:
        """Slots of windows that unroll number `count` overwrites; `slots` for none."""
        first = self._next_start(self.oldest_start(count))
        starts = first + self._start_offsets(self.unroll + self.ring.start_margin)
        return self._slot(starts, starts < self.oldest_start(count + 1))

    def completed_slots(self, count: Int[Array, ""]) -> Int[Array, "slots"]:
        """Slots of windows that unroll number `count` completes; `slots` for none."""
        first = self._next_start(self.newest_start(count) + 1)
        starts = first + self._start_offsets(self.unroll)
        is_complete = starts <= self.newest_start(count + 1)
        return self._slot(
            starts, is_complete & (starts >= self.oldest_start(count + 1))
        )

    def starting_rows(
        self, count: Int[Array, ""]
    ) -> tuple[Int[Array, "slots"], Int[Array, "slots"]]:
        """Rows of unroll number `count` where windows begin, and their slots.

        Surplus entries have slot `slots` and an arbitrary row.
        """
        start_time = count * self.unroll
        starts = self._next_start(start_time) + self._start_offsets(self.unroll)
        is_starting = starts < start_time + self.unroll
        return jnp.where(is_starting, starts - start_time, 0), self._slot(
            starts, is_starting
        )

    def start_time(
        self, slot: Int[Array, "N"], count: Int[Array, ""]
    ) -> Int[Array, "N"]:
        """The time at which the current window of a slot begins."""
        first = self._next_start(self.oldest_start(count)) // self.stride
        return (first + (slot - first) % self.slots) * self.stride

    def _next_start(self, time: Int[Array, ""]) -> Int[Array, ""]:
        return -(-time // self.stride) * self.stride

    def _start_offsets(self, length: int) -> Int[Array, "slots"]:
        """Offsets of windows in `length` steps if one begins at the first step."""
        return jnp.arange(0, length, self.stride, dtype=jnp.int32)

    def _slot(
        self, start: Int[Array, "slots"], is_valid: Bool[Array, "slots"]
    ) -> Int[Array, "slots"]:
        return jnp.where(is_valid, start // self.stride % self.slots, self.slots)
