"""Canvas: draws lines as text, with eight braille dots per character.

Libraries for plots in terminals tell curves apart by colour only, and draw legends over
the curves. Here a cell belongs to one curve, so it can be coloured or replaced by a
letter, and the picture is readable in a pipe.
"""

import math
from collections.abc import Sequence

import numpy as np

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
ROWS, COLUMNS = _DOTS.shape  # dots of a character


class BrailleCanvas:
    """Dots in `height` lines of `width` characters; a cell shows its latest owner.

    Coordinates are those of the data: the canvas shows `x` and `y`, (low, high) each.
    """

    def __init__(
        self, width: int, height: int, x: tuple[float, float], y: tuple[float, float]
    ) -> None:
        self.width, self.height = width, height
        self._x, self._y = x, y
        self._dots = np.zeros((height * ROWS, width * COLUMNS), bool)
        self._owners = np.full((height, width), -1)

    def draw_line(self, x: np.ndarray, y: np.ndarray, owner: int) -> None:
        """Draws a line through points; a single point is a dot."""
        columns = self._columns()
        inside = (columns >= x[0]) & (columns <= x[-1])
        inside[self._column(x[0])] = inside[self._column(x[-1])] = True
        (places,) = np.nonzero(inside)
        rows = self._rows(np.interp(columns[places], x, y))
        for index, (column, row) in enumerate(zip(places, rows, strict=True)):
            before = rows[index - 1] if index else row
            # Half of a steep step belongs to each of the two columns.
            low, high = sorted((row, (before + row) // 2))
            self._set(slice(low, high + 1), column, owner)
            if index:
                low, high = sorted((before, (before + row) // 2))
                self._set(slice(low, high + 1), column - 1, owner)

    def shade(
        self, x: np.ndarray, low: np.ndarray, high: np.ndarray, owner: int
    ) -> None:
        """Shades the area between two lines with sparse dots."""
        columns = self._columns()
        (places,) = np.nonzero((columns >= x[0]) & (columns <= x[-1]))
        top = self._rows(np.interp(columns[places], x, high))
        bottom = self._rows(np.interp(columns[places], x, low))
        for column, first, last in zip(places, top, bottom, strict=True):
            # One dot in a character, in two alternating rows.
            if column % COLUMNS == owner % COLUMNS:
                begin = first + (column - first) % ROWS
                self._set(slice(begin, last + 1, ROWS), column, owner)

    def row(self, y: float) -> int:
        """The line of text at a value."""
        return int(self._rows(np.array([y]))[0]) // ROWS

    def column(self, x: float) -> int:
        """The column of text at a value."""
        return self._column(x) // COLUMNS

    def cell(self, row: int, column: int) -> tuple[str, int]:
        """The braille character of a cell and its owner, or a space and -1."""
        top, left = row * ROWS, column * COLUMNS
        dots = self._dots[top : top + ROWS, left : left + COLUMNS]
        if not dots.any():
            return " ", -1
        return chr(0x2800 + int(_DOTS[dots].sum())), int(self._owners[row, column])

    def _set(self, rows: slice, column: np.integer | int, owner: int) -> None:
        self._dots[rows, column] = True
        lines = {row // ROWS for row in range(rows.start, rows.stop, rows.step or 1)}
        self._owners[[*lines], column // COLUMNS] = owner

    def _columns(self) -> np.ndarray:
        """The x at the middle of each column of dots."""
        low, high = self._x
        count = self.width * COLUMNS
        return low + (np.arange(count) + 0.5) * (high - low) / count

    def _column(self, x: float) -> int:
        low, high = self._x
        count = self.width * COLUMNS
        return min(int((x - low) / (high - low) * count), count - 1)

    def _rows(self, y: np.ndarray) -> np.ndarray:
        """The row of dots at each value; rows count from the top."""
        low, high = self._y
        count = self.height * ROWS
        rows = ((high - y) / (high - low) * count).astype(int)
        return np.clip(rows, 0, count - 1)


def choose_ticks(low: float, high: float, count: int) -> list[float]:
    """At most `count` round numbers within a range, at equal distances.

    >>> choose_ticks(0, 500, 6)
    [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    """
    size = 10.0 ** math.floor(math.log10((high - low) / max(count, 1)))
    steps = [factor * size for factor in (1, 2, 2.5, 5, 10, 20, 25, 50)]
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < count:
            break
    return [number * step + 0.0 for number in range(first, last + 1)]


def widen_range(values: Sequence[float]) -> tuple[float, float]:
    """The range of values; a single value gets a range around it."""
    low, high = min(values), max(values)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    margin = abs(low) / 10 or 1.0
    return low - margin, high + margin
