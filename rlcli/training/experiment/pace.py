"""Pace: sizes chunks so that the run reacts to signals quickly."""

import bisect
from collections.abc import Callable

TARGET = 0.5  # seconds of a chunk: long enough that the work between chunks is cheap
SLOW = 2.0  # seconds of an iteration from which on each one gets a checkpoint
_GROWTH = 8  # a chunk is at most this many times as long as the last one


class Pace:
    """Sizes chunks by the measured cost of iterations.

    The cost of the first iteration is unknown, and so is that of the first iteration
    with an update, which may be 100 000 times as much. Each of them is therefore a
    chunk by itself, and a chunk is at most 8 times as long as the last one.

    Args:
        updates: maps a number of iterations to the number of updates in them.
        iterations: of the whole run.
    """

    def __init__(self, updates: Callable[[int], int], iterations: int) -> None:
        self._updates = updates
        self._iterations = iterations
        self._size = 1
        self._seconds = 0.0  # of one iteration, by the last measurement
        self._is_compiled = False
        self._has_learned = False

    @property
    def is_slow(self) -> bool:
        """Whether a single iteration takes seconds."""
        return self._seconds >= SLOW

    def size(self, iteration: int) -> int:
        """The number of iterations of the chunk that begins at `iteration`."""
        if self._has_learned:
            return self._size
        without_update = bisect.bisect_right(
            range(iteration + 1, self._iterations + 1),
            self._updates(iteration),
            key=self._updates,
        )  # iterations before the first update
        return min(self._size, without_update) if without_update else 1

    def measure(self, before: int, iterations: int, seconds: float) -> None:
        """Records the duration of a chunk that began at the iteration `before`."""
        if not self._is_compiled:  # the first chunk includes the compilation
            self._is_compiled = True
            return
        learned = self._updates(before + iterations) > self._updates(before)
        if learned and not self._has_learned:
            self._has_learned, self._size = True, iterations
        elif 2 * iterations < self._size and seconds < TARGET:
            return  # shortened by a period: mostly the overhead of a chunk
        self._seconds = seconds / iterations
        size = int(TARGET / max(self._seconds, 1e-9))
        self._size = max(1, min(size, _GROWTH * max(self._size, iterations)))
