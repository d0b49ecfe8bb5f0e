"""Pace: how many iterations make a chunk that answers signals at once."""

from __future__ import annotations

import bisect
from collections.abc import Callable

TARGET = 0.5  # seconds of a chunk: what is done between two of them costs little
SLOW = 2.0  # seconds of a single iteration from which on each is worth a checkpoint
_GROWTH = 8  # times as long as the last chunk, at most


class Pace:
    """Sizes chunks by what iterations were measured to cost.

    The cost of the first iteration is not known, nor that of the first one that learns,
    which may be 100 000 times as much. So either makes a chunk of its own, and a chunk
    is at most 8 times as long as the last one.

    Args:
        updates: the number of updates in so many iterations.
        iterations: in the whole run.
    """

    def __init__(self, updates: Callable[[int], int], iterations: int) -> None:
        self._updates = updates
        self._iterations = iterations
        self._size = 1
        self._seconds = 0.0  # of one iteration, as measured last
        self._is_compiled = False
        self._has_learned = False

    @property
    def is_slow(self) -> bool:
        """Whether a single iteration takes seconds."""
        return self._seconds >= SLOW

    def size(self, iteration: int) -> int:
        """How many iterations the chunk that begins at `iteration` has."""
        if self._has_learned:
            return self._size
        quiet = bisect.bisect_right(
            range(iteration + 1, self._iterations + 1),
            self._updates(iteration),
            key=self._updates,
        )  # iterations before the first that learns
        return min(self._size, quiet) if quiet else 1

    def measure(self, before: int, iterations: int, seconds: float) -> None:
        """Takes the seconds of a chunk that began at the iteration `before`."""
        if not self._is_compiled:  # the compiler's time says nothing of the next chunk
            self._is_compiled = True
            return
        learned = self._updates(before + iterations) > self._updates(before)
        if learned and not self._has_learned:
            self._has_learned, self._size = True, iterations
        elif 2 * iterations < self._size and seconds < TARGET:
            return  # cut short by a period: mostly what a chunk costs by itself
        self._seconds = seconds / iterations
        fitting = int(TARGET / max(self._seconds, 1e-9))
        self._size = max(1, min(fitting, _GROWTH * max(self._size, iterations)))
