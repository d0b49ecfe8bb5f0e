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
    def least(self) -> int:
        """Steps of each environment with which there is one for sure."""
        return self.ring.before + self.span + self.ring.behind + self.stride - 1

    @property
    def slots(self) -> int:
        """As many as there may be in one environment at once, and one more."""
        return self.ring.rows // self.stride + 2

    def oldest(self, count: Array) -> Array:
        """The time before which no window may begin."""
        after = (count * self.unroll) - self.ring.rows
        # At time 0 an episode begins: there is nothing before it that one could need.
        return jnp.where(after > 0, after + self.ring.before, 0)

    def newest(self, count: Array) -> Array:
        """The time after which none may begin; negative while there is none."""
        return count * self.unroll - self.ring.behind - self.span

    def standing(self, count: Array) -> tuple[Array, Array]:
        """When the oldest begins, and how many there are, at least one."""
        first = self._next(self.oldest(count))
        number = (self.newest(count) - first) // self.stride + 1
        return first, jnp.maximum(number, 1)

    def gone(self, count: Array) -> Array:
        """Slots of the windows that unroll number `count` overwrites; `slots`: none."""
        first = self._next(self.oldest(count))
        starts = first + self._steps(self.unroll + self.ring.before)
        return self._slot(starts, starts < self.oldest(count + 1))

    def come(self, count: Array) -> Array:
        """Slots of the windows that unroll number `count` completes; `slots`: none."""
        first = self._next(self.newest(count) + 1)
        starts = first + self._steps(self.unroll)
        there = starts <= self.newest(count + 1)
        return self._slot(starts, there & (starts >= self.oldest(count + 1)))

    def begun(self, count: Array) -> tuple[Array, Array]:
        """Rows of unroll number `count` at which one begins, and slots; `slots`: none.

        A row without a window is some row.
        """
        now = count * self.unroll
        starts = self._next(now) + self._steps(self.unroll)
        there = starts < now + self.unroll
        return jnp.where(there, starts - now, 0), self._slot(starts, there)

    def start(self, slot: Array, count: Array) -> Array:
        """The time at which the standing window in a slot begins."""
        first = self._next(self.oldest(count)) // self.stride
        return (first + (slot - first) % self.slots) * self.stride

    def _next(self, time: Array) -> Array:
        return -(-time // self.stride) * self.stride

    def _steps(self, length: int) -> Array:
        """Where windows begin in so many steps, if one does in the first."""
        return jnp.arange(0, length, self.stride, dtype=jnp.int32)

    def _slot(self, start: Array, there: Array) -> Array:
        return jnp.where(there, start // self.stride % self.slots, self.slots)
