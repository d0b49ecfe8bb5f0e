"""Results queue: the results that wait for a tracker, within limits of memory."""

from __future__ import annotations

import threading
from collections import deque

from rlcli.training.track_records import Results

MAX_ROWS = 10_000  # that wait
# Of histograms that wait; those of the last evaluation always do.
MAX_BYTES = 64 * 2**20


class ResultsQueue:
    """The results that wait for a tracker, in order.

    Beyond `MAX_BYTES`, the oldest results lose their histograms.
    """

    def __init__(self) -> None:
        self._results: deque[Results] = deque()
        self._has_changed = threading.Condition()
        self._rows = 0
        self._is_ended = False

    def put(self, results: Results) -> bool:
        """Adds results, without waiting; False if too many rows wait already."""
        with self._has_changed:
            if self._results and self._rows + len(results.rows) > MAX_ROWS:
                return False
            self._results.append(results)
            self._rows += len(results.rows)
            if results.histograms:
                self._limit_histograms()
            self._has_changed.notify()
            return True

    def end(self) -> None:
        """Makes `get` return None after the results that wait."""
        with self._has_changed:
            self._is_ended = True
            self._has_changed.notify()

    def get(self) -> Results | None:
        """Waits for results, and removes them; None if there will be no more."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: self._results or self._is_ended)
            if not self._results:
                return None
            results = self._results.popleft()
            self._rows -= len(results.rows)
            return results

    def clear(self) -> None:
        """Removes all results."""
        with self._has_changed:
            self._results.clear()
            self._rows = 0

    @property
    def is_empty(self) -> bool:
        """Whether no results wait."""
        return not self._results

    def _limit_histograms(self) -> None:
        """Removes the oldest histograms beyond `MAX_BYTES`, but not the newest."""
        room = MAX_BYTES
        for index in reversed(range(len(self._results))):
            results = self._results[index]
            room -= _histogram_bytes(results)
            if room < 0 and index < len(self._results) - 1:
                self._results[index] = results._replace(histograms=())


def _histogram_bytes(results: Results) -> int:
    return sum(values.nbytes for seed in results.histograms for values in seed.values())
