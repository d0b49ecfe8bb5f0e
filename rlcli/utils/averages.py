"""Averages: means that follow a stream of numbers."""

from __future__ import annotations

import math
from collections import deque


class RollingAverage:
    """The mean of the last `n` numbers, or of all while there are fewer.

        v = (x₁ + … + xₖ) / k        k = min(numbers seen, n)

    0 before the first. The sum is made anew each time, so that no error builds up.
    """

    def __init__(self, n: int = 100) -> None:
        self._last: deque[float] = deque(maxlen=_positive(n))

    @property
    def value(self) -> float:
        """The average now."""
        return math.fsum(self._last) / max(len(self._last), 1)

    def update(self, x: float) -> float:
        """Takes in one more number and gives the average."""
        self._last.append(float(x))
        return self.value


class ExponentialAverage:
    """A running mean that forgets at the rate 1/n, without a bias at the start.

        v ← v + (x − v) / min(k, n)        k: numbers seen, x the k-th

    So the first `n` numbers count alike; from then on older ones fade. 0 before the
    first.
    """

    def __init__(self, n: int = 100) -> None:
        self._longest = _positive(n)
        self._seen = 0
        self._value = 0.0

    @property
    def value(self) -> float:
        """The average now."""
        return self._value

    def update(self, x: float) -> float:
        """Takes in one more number and gives the average."""
        self._seen = min(self._seen + 1, self._longest)
        self._value += (float(x) - self._value) / self._seen
        return self._value


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"expected a window of at least 1, got {n}")
    return n
