"""Drawing: curves and cells of the panel, as text."""

import math
from collections.abc import Sequence

import numpy as np
from rich.text import Text

from rlcli.monitor.lines import finite_values

POINTS = 512  # maximum of a curve; beyond it every second point is dropped
GAP = 2  # between two cells
_NUMBER = 6  # characters of a number, at least
SPARKS = "▁▂▃▄▅▆▇█"


class BoundedSeries:
    """A number over the run, as a bounded number of evenly spaced points."""

    def __init__(self) -> None:
        self.points: list[float] = []
        self._stride = 1
        self._count = 0

    def add(self, value: float | None) -> None:
        """Adds the next value; skips None and values that are not finite."""
        for point in finite_values([value]):
            if self._count % self._stride == 0:
                self.points.append(point)
            self._count += 1
        if len(self.points) > POINTS:
            del self.points[1::2]
            self._stride *= 2


def sparkline(values: Sequence[float], width: int) -> str:
    """Draws a curve in at most `width` characters, from its minimum to its maximum.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8)
    '▁▂▃▄▅▆▇█'
    """
    points = np.asarray([x for x in values if math.isfinite(x)])
    if points.size == 0 or width < 1:
        return ""
    parts = np.array_split(points, min(width, points.size))
    means = np.array([part.mean() for part in parts])
    height = np.ptp(means)
    levels = (means - means.min()) / height if height > 0 else np.zeros(means.size)
    return "".join(SPARKS[round(7 * level)] for level in levels)


def format_cells(pairs: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Formats names and numbers in as many columns as fit, a text per row.

    A name is only cut if it does not fit in a row of its own.
    """
    for columns in range(max(1, len(pairs)), 0, -1):
        cells = [pairs[column::columns] for column in range(columns)]
        names = [max((len(name) for name, _ in cell), default=0) for cell in cells]
        # At least the size of most numbers, so that columns do not move with a digit.
        numbers = [max([_NUMBER, *(len(x) for _, x in cell)]) for cell in cells]
        if sum(names) + sum(numbers) + columns + GAP * (columns - 1) <= width:
            break
    names = [
        min(name, max(1, width - n - 1)) for name, n in zip(names, numbers, strict=True)
    ]
    rows = []
    for start in range(0, len(pairs), columns):
        text = Text()
        for column, (name, value) in enumerate(pairs[start : start + columns]):
            room = names[column]
            name = name if len(name) <= room else name[: room - 1] + "…"
            text.append(name.ljust(room + 1), "dim")
            text.append(value.ljust(numbers[column] + GAP))
        text.rstrip()
        rows.append(text)
    return rows


def format_time(seconds: float) -> str:
    """Formats a duration: `1:05` or `2:00:40`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_frozen_reason(reason: object) -> str:
    """Formats the reason why a seed is frozen."""
    return f"frozen: {reason}" if isinstance(reason, str) else "frozen"


def mean(values: Sequence[float]) -> float:
    """The mean of at least one number."""
    return sum(values) / len(values)
