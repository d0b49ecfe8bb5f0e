"""Seeds table: the results of several seeds, one row each, or their extremes.

Several runs that are trained together are shown in the same way. Before it, curves and
cells of the panel as text.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from rlcli.monitor.lines import Row, finite_values, format_number, row_kind

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


MAX_SEED_ROWS = 8  # more seeds than these share three lines: mean, min, max
_TRAINING = ("ep", "t", "G", "avg_G")
_COLUMNS = (*_TRAINING, "evaluation")
# Columns that a narrow table leaves out, in order.
_LEAST_IMPORTANT = ("t", "ep", "G", "evaluation")
_COUNTS = ("ep", "t")  # means of these are rounded
_GAP = 2  # characters between two columns
_MIN_WIDTH = 5  # characters of a column, so that the columns do not move
_MIN_CURVE = 8  # characters; a shorter curve is not readable


class SeedRows(NamedTuple):
    """The latest row, the curve of `avg_G` and the last evaluation of each seed."""

    rows: dict[int | str, Row]  # by seed, or by run
    curves: dict[int | str, BoundedSeries]
    evaluations: dict[int | str, float]
    mean_curve: BoundedSeries


class _Line(NamedTuple):
    """A row of the table: its numbers, and its curve or a note."""

    name: str
    numbers: Mapping[str, str]
    curve: Sequence[float] = ()
    note: str = ""


def row_count(seeds: int, room: int) -> int:
    """The number of rows, the heading included, of a table in `room` lines."""
    return seeds + 2 if seeds <= MAX_SEED_ROWS and seeds + 2 <= room else 4


def seeds_table(results: SeedRows, width: int, room: int) -> Table:
    """A row per seed if there is room, else minimum and maximum over the seeds.

    Columns without any number are left out, and in a narrow table the least important.
    """
    lines = _lines(results, row_count(len(results.rows), room))
    widths = {
        name: max(_MIN_WIDTH, len(name), *(len(line.numbers[name]) for line in lines))
        for name in _COLUMNS
        if any(line.numbers[name] for line in lines)
    }
    kind = row_kind([*results.rows.values()])
    first = max(len(kind), *(len(line.name) for line in lines))
    first = min(first, width // 2)  # the names of runs may be long

    def free_width() -> int:
        """The characters beside the numbers."""
        return width - first - sum(widths.values()) - _GAP * (len(widths) + 1)

    has_notes = any(line.note for line in lines)
    for name in _LEAST_IMPORTANT:
        if free_width() < (_MIN_CURVE if has_notes else -_GAP):
            widths.pop(name, None)
    has_curve = free_width() >= _MIN_CURVE
    table = Table(
        box=None,
        expand=True,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        header_style="dim",
    )
    table.add_column(
        kind, no_wrap=True, min_width=first, max_width=first, overflow="ellipsis"
    )
    for name, size in widths.items():
        table.add_column(name, justify="right", no_wrap=True, min_width=size)
    if has_curve or has_notes:
        heading = "avg_G over time"
        heading = heading if len(heading) <= free_width() else ""
        table.add_column(heading, ratio=1, no_wrap=True, overflow="ellipsis")
    for line in lines:
        numbers = [line.numbers[name] or "–" for name in widths]
        text = Text(sparkline(line.curve, free_width()), "cyan")
        if line.note:
            text = Text(line.note, "bold red")
        table.add_row(line.name, *numbers, *([text] if has_curve or has_notes else []))
    return table


def _lines(results: SeedRows, count: int) -> list[_Line]:
    values = {
        seed: {**results.rows[seed], "evaluation": results.evaluations.get(seed)}
        for seed in results.rows
    }
    frozen = {s: r["frozen"] for s, r in results.rows.items() if r.get("frozen")}
    # Frozen seeds count in evaluations, but not in the numbers of training.
    alive = [
        {**value, **(dict.fromkeys(_TRAINING) if seed in frozen else {})}
        for seed, value in values.items()
    ]
    alive = alive if len(frozen) < len(values) else [*values.values()]
    if count == len(values) + 2:
        lines = [
            _Line(
                str(seed),
                _format_numbers([value], mean),
                results.curves[seed].points,
                format_frozen_reason(frozen[seed]) if seed in frozen else "",
            )
            for seed, value in values.items()
        ]
    else:
        note = f"frozen: {', '.join(map(str, frozen))}" if frozen else ""
        lines = [
            _Line("min", _format_numbers(alive, min)),
            _Line("max", _format_numbers(alive, max), note=note),
        ]
    total = _Line("mean", _format_numbers(alive, mean), results.mean_curve.points)
    return [*lines, total]


def _format_numbers(
    values: Sequence[Mapping], reduce: Callable[[Sequence[float]], float]
) -> dict[str, str]:
    """The numbers of each column, reduced over seeds; "" where there is none."""
    cells = {}
    for name in _COLUMNS:
        numbers = finite_values(row.get(name) for row in values)
        cells[name] = ""
        if numbers:
            number = reduce(numbers)
            cells[name] = format_number(round(number) if name in _COUNTS else number)
    return cells
