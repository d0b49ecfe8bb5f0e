"""Ring buffers of raw steps, and the windows of steps that can be sampled from them.

New steps overwrite the oldest. A window is `span` consecutive steps of one environment;
one begins every `stride` steps. It is available from its last step until its first step
is overwritten.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from rlcli.errors import RlcliError
from rlcli.types import Array, ArrayTree, FrameStack, ReplayTraits
from rlcli.xla.packing import PackedTree, Packing

NARROW_SIZE = 32  # elements: larger arrays are stored unpacked, with their own kernel


class RingState(NamedTuple):
    """The stored steps, packed so that small arrays are written in one operation."""

    packed: PackedTree  # `[slots, ...]`
    packing: Packing  # packing of one step


class Ring(NamedTuple):
    """A ring buffer of the newest `rows` steps of each environment.

    Times count the steps of an environment since the start of the run. Windows begin at
    least `start_margin` steps after the oldest step, and end at least `end_margin`
    steps before the newest.
    """

    # example unroll [unroll, num_envs, ...] -> state
    init: Callable[[ArrayTree], ArrayTree]
    # (state, steps, count) -> state
    add: Callable[[Any, ArrayTree, Int[Array, ""]], ArrayTree]
    # (state, start[N], environment[N], span) -> steps[span, N, ...], is_complete[N]:
    # whether everything the window needs is still stored
    take: Callable[..., tuple[ArrayTree, Bool[Array, "N"]]]
    rows: int
    unroll: int  # steps of each environment that are added together
    num_envs: int
    start_margin: int = 0
    end_margin: int = 0
    # The stack that observations must be, because each frame is stored once.
    frame_stack: FrameStack | None = None

    def check_rows(self, replay: str, capacity: int, rows: int, why: str) -> None:
        """Raises an error if there is no room for `rows` steps of each environment.

        `why` is the subject and verb of the message: "{why} {rows} consecutive steps".
        """
        if self.rows >= rows:
            return
        min_capacity = -(-rows // self.unroll) * self.unroll * self.num_envs
        raise RlcliError(
            f"replay `{replay}` with a capacity of {capacity:,} holds {self.rows:,} "
            f"steps of each environment, but {why} {rows:,} consecutive steps",
            f"raise `replay.capacity` to at least {min_capacity:,}",
        )

    def contents(self, state: Any, count: int, most: int) -> tuple[int, ArrayTree]:
        """The number of steps, and at most `most` of them: `Replay.contents`."""
        end = count * self.unroll
        oldest = max(end - self.rows, 0)
        # Steps that the ring cannot put together, as those that are not complete.
        oldest += self.start_margin if oldest else 0
        end = max(end - self.end_margin, oldest)
        take = jax.jit(self.take, static_argnums=3)
        while True:
            stored = (end - oldest) * self.num_envs
            index = np.linspace(0, max(stored - 1, 0), min(most, stored))
            index = index.astype(np.int32)
            times, environments = oldest + index // self.num_envs, index % self.num_envs
            steps, is_complete = take(state, times, environments, 1)
            if np.all(is_complete):
                return stored, jax.tree.map(lambda leaf: leaf[0], steps)
            # What completes the oldest steps is overwritten first.
            oldest = int(times[~np.asarray(is_complete)].max()) + 1

    def redivide(
        self, state: RingState, count: int, before: int, after: int
    ) -> RingState:
        """Redistributes the state, `[S, ...]`, from `before` to `after` devices.

        This ring is that of one of the `after` devices, and `count` the number of
        unrolls added. The newest `rows` steps of each environment are kept.
        """
        environments = np.arange(after * self.num_envs)
        end = count * self.unroll
        times = np.arange(max(end - self.rows, 0), end)[:, None]

        def places(devices: int) -> tuple[np.ndarray, int]:
            """The index of each step `[time, environment]`, and all rings' length."""
            share = len(environments) // devices
            slots, num_writes = _ring_layout(self.rows, self.unroll, share)
            length = slots * self.unroll * share + num_writes - 1
            device, environment = np.divmod(environments, share)
            index = times % (slots * self.unroll) * share + environment
            return device * length + index, devices * length

        source, _ = places(before)
        target, length = places(after)

        def move(leaf: Array) -> np.ndarray:
            leaf = np.asarray(leaf)
            new = np.zeros((len(leaf), length, *leaf.shape[2:]), leaf.dtype)
            new[:, target] = leaf[:, source]
            return new

        return state._replace(packed=jax.tree.map(move, state.packed))


def step_ring(capacity: int, unroll: int, num_envs: int) -> Ring:
    """A ring buffer of unmodified steps, any pytree `[unroll, num_envs, ...]`."""
    rows = capacity // (num_envs * unroll) * unroll  # in whole unrolls
    size = unroll * num_envs  # steps of an unroll
    slots, num_writes = _ring_layout(rows, unroll, num_envs)

    def init(steps: ArrayTree) -> RingState:
        step = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), steps)
        packing = Packing(step, NARROW_SIZE)
        length = slots * size + num_writes - 1
        packed_steps = jax.tree.map(
            lambda x: jnp.zeros((length, *x.shape), x.dtype),
            jax.eval_shape(packing.pack, step),
        )
        return RingState(packed_steps, packing)

    def add(ring: RingState, steps: ArrayTree, count: Int[Array, ""]) -> RingState:
        head = count % slots * size

        def flatten_rows(leaf: Array) -> Array:
            leaf = leaf.reshape((size, *leaf.shape[2:]))
            return jnp.concatenate([leaf] * num_writes)

        new = jax.vmap(ring.packing.pack)(jax.tree.map(flatten_rows, steps))

        def write(old: Array, new: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(old, new, head, 0)

        return ring._replace(packed=jax.tree.map(write, ring.packed, new))

    def take(
        ring: RingState, start: Int[Array, "N"], environment: Int[Array, "N"], span: int
    ) -> tuple[ArrayTree, Bool[Array, "N"]]:
        times = start + jnp.arange(span, dtype=jnp.int32)[:, None]
        index = times % (slots * unroll) * num_envs + environment
        gathered = jax.tree.map(lambda leaf: leaf[index], ring.packed)
        steps = jax.vmap(jax.vmap(ring.packing.unpack))(gathered)
        return steps, jnp.ones(start.shape, bool)

    return Ring(init, add, take, rows, unroll, num_envs)


def _ring_layout(rows: int, unroll: int, num_envs: int) -> tuple[int, int]:
    """The number of slots, one for each unroll, and how often an unroll is written.

    An unroll of a single row is written twice: the second copy goes into the next slot,
    and so one slot is spare. XLA considers the write of a single row so cheap that it
    would repeat the write inside the following read, and copy the whole ring at every
    step.
    """
    num_writes, spare = (2, 1) if unroll * num_envs == 1 else (1, 0)
    return rows // unroll + spare, num_writes


class Windows(NamedTuple):
    """The windows of a ring; `count` is the number of unrolls added so far."""

    ring: Ring
    span: int
    stride: int = 1

    def traits(self, capacity: int, batch_size: int) -> ReplayTraits:
        """The traits of a replay with these windows."""
        traits = ReplayTraits(capacity, self.min_steps, batch_size=batch_size)
        return traits._replace(frame_stack=self.ring.frame_stack)

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

    @property
    def no_window(self) -> int:
        """The number of slots of all environments, as an index of none of them."""
        return self.slots * self.ring.num_envs

    def oldest_start(self, count: Int[Array, ""]) -> Int[Array, ""]:
        """The earliest time at which a window may begin."""
        oldest_step = (count * self.ring.unroll) - self.ring.rows
        # At time 0 an episode begins, so no window needs earlier steps.
        return jnp.where(oldest_step > 0, oldest_step + self.ring.start_margin, 0)

    def newest_start(self, count: Int[Array, ""]) -> Int[Array, ""]:
        """The latest time at which a window may begin; negative if there is none."""
        return count * self.ring.unroll - self.ring.end_margin - self.span

    def available(self, count: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The start of the oldest window, and the number of windows, at least 1."""
        first = self._next_start(self.oldest_start(count))
        number = (self.newest_start(count) - first) // self.stride + 1
        return first, jnp.maximum(number, 1)

    def overwritten_slots(self, count: Int[Array, ""]) -> Int[Array, "slots"]:
        """Slots of windows that unroll number `count` overwrites; `slots` for none."""
        first = self._next_start(self.oldest_start(count))
        starts = first + self._start_offsets(self.ring.unroll + self.ring.start_margin)
        return self._slot(starts, starts < self.oldest_start(count + 1))

    def completed_slots(self, count: Int[Array, ""]) -> Int[Array, "slots"]:
        """Slots of windows that unroll number `count` completes; `slots` for none."""
        first = self._next_start(self.newest_start(count) + 1)
        starts = first + self._start_offsets(self.ring.unroll)
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
        start_time = count * self.ring.unroll
        starts = self._next_start(start_time) + self._start_offsets(self.ring.unroll)
        is_starting = starts < start_time + self.ring.unroll
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
