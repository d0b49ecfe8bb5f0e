"""Averages: running means of a stream of numbers."""

import math
from collections import deque


class RollingAverage:
    """The mean of the last `n` numbers, or of all if there are fewer.

        v = (x₁ + … + xₖ) / k        k = min(numbers seen, n)

    0 before the first number. The sum is computed again each time, so that rounding
    errors do not accumulate.
    """

    def __init__(self, n: int = 100) -> None:
        self._window: deque[float] = deque(maxlen=_check_positive(n))

    @property
    def value(self) -> float:
        """The current average."""
        return math.fsum(self._window) / max(len(self._window), 1)

    def update(self, x: float) -> float:
        """Adds a number and returns the average."""
        self._window.append(float(x))
        return self.value


class ExponentialAverage:
    """An exponential moving average with rate 1/n, without initial bias.

        v ← v + (x − v) / min(k, n)        k: numbers seen, x the k-th

    The first `n` numbers have equal weights; later the weights decay exponentially. 0
    before the first number.
    """

    def __init__(self, n: int = 100) -> None:
        self._max_count = _check_positive(n)
        self._count = 0
        self._value = 0.0

    @property
    def value(self) -> float:
        """The current average."""
        return self._value

    def update(self, x: float) -> float:
        """Adds a number and returns the average."""
        self._count = min(self._count + 1, self._max_count)
        self._value += (float(x) - self._value) / self._count
        return self._value


def _check_positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"expected a window of at least 1, got {n}")
    return n
