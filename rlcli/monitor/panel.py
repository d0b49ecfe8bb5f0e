"""Panel: the live display of a run in a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlcli.monitor.lines import (
    NOT_METRICS,
    Row,
    finite_values,
    format_evaluation,
    group_by_point,
    merge_rows,
)
from rlcli.runs.formats import format_number
from rlcli.terminal import printable

MAX_SEED_ROWS = 8  # more seeds than these share three lines: mean, min, max
POINTS = 512  # maximum of a curve; beyond it every second point is dropped
CELL = 24  # characters of a name with its number
GAP = 1  # between two cells
MARGIN = 2  # right of the panel: room for the `^C` that the terminal prints
SPARKS = "▁▂▃▄▅▆▇█"
_COLUMNS = ("ep", "t", "G", "avg_G")
_RATES = ("steps", "updates")
_SHOWN_ELSEWHERE = NOT_METRICS | {"seeds", "min_avg_G", "max_avg_G"}


class Curve:
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


class RunPanel:
    """The data of a run's panel, and how to draw it."""

    def __init__(
        self,
        total_steps: int,
        seeds: Sequence[int],
        title: str,
        start: int = 0,
        *,
        start_time: float | None = None,
        hint: str = "Ctrl-C saves and stops",
    ) -> None:
        self.total_steps = total_steps
        self.seeds = list(seeds)
        self.title = printable(title)
        self.hint = hint
        self.step = start
        self.is_finished = False
        self.end_time: float | None = None
        self._start = time.time() if start_time is None else start_time
        self._first: tuple[float, int] | None = None  # time and step of the first rows
        self._rows: dict[int, Row] = {}
        self._curves: dict[int, Curve] = {}
        self._mean_curve = Curve()
        self._evaluations: dict[int, float] = {}
        self._evaluation_curve = Curve()
        self._evaluation = ""

    def add(self, rows: Sequence[Row], step: int, evaluation: Sequence[Row]) -> None:
        """Adds the rows of log points and of an evaluation."""
        self.step = step
        # Excludes the first steps from the speed: they include the compilation.
        self._first = self._first or self._first_point(rows, step)
        for row in rows:
            self._rows[row["seed"]] = row
            self._curves.setdefault(row["seed"], Curve()).add(row.get("avg_G"))
        for point in group_by_point(rows):
            self._mean_curve.add(merge_rows(point).get("avg_G"))
        if evaluation:
            means = {row["seed"]: row["evaluation"]["mean"] for row in evaluation}
            self._evaluations |= means
            self._evaluation = format_evaluation(evaluation)
            self._evaluation_curve.add(_mean(list(means.values())))

    def _first_point(self, rows: Sequence[Row], step: int) -> tuple[float, int] | None:
        """Time and step of the first row since the start; of now if there are none."""
        if not rows:
            return time.time(), step
        points = ((row.get("time", time.time()), row["T"]) for row in rows)
        return next((point for point in points if point[0] >= self._start), None)

    def draw(self, console: Console) -> RenderableType:
        """Draws the panel for the current size of the console."""
        width = console.width - MARGIN - 4  # the frame
        parts: list[RenderableType] = [self._progress(), Text()]
        if not self._rows:
            parts.append(Text("compiling; waiting for the first steps"))
        else:
            parts += self._numbers(width, console.height)
        seeds_note = f" · {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        return Panel(
            Group(*parts),
            box=ROUNDED,
            title=Text.assemble((self.title, "bold"), seeds_note),
            title_align="left",
            subtitle=None if self.is_finished else Text(self.hint, "dim"),
            subtitle_align="right",
            border_style="dim",
            width=console.width - MARGIN,
        )

    def _progress(self) -> Table:
        done = min(self.step / self.total_steps, 1.0) if self.total_steps else 1.0
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(ratio=1)
        for _ in range(3):
            grid.add_column(no_wrap=True)
        grid.add_row(
            ProgressBar(total=1.0, completed=done),
            f"{100 * done:.0f} %",
            f"{self.step:,} of {self.total_steps:,} steps",
            self._clock(),
        )
        return grid

    def _clock(self) -> str:
        now = time.time() if self.end_time is None else self.end_time
        spent = _format_minutes(now - self._start)
        if self.is_finished or self._first is None or self.step <= self._first[1]:
            return f"{spent} elapsed"
        pace = (now - self._first[0]) / (self.step - self._first[1])
        left = _format_minutes(pace * max(self.total_steps - self.step, 0))
        return f"{spent} elapsed, {left} left"

    def _numbers(self, width: int, height: int) -> list[RenderableType]:
        row = merge_rows([self._rows[seed] for seed in sorted(self._rows)])
        is_single = len(self._rows) == 1
        names = (
            ("ep", "T", "t", "G", "avg_G", "avg_r")
            if is_single
            else ("ep", "T", "avg_r")
        )
        counts = {name: row.get(name) for name in names}
        rates = {f"{rate}/s": row.get(f"{rate}_per_second") for rate in _RATES}
        top = [(name, format_number(value)) for name, value in counts.items()]
        top += [("dt", f"{format_number(row.get('dt'))} ms")]
        top += [(name, format_number(rate)) for name, rate in rates.items()]
        rest = [
            (printable(name), format_number(value))
            for name, value in row.items()
            if name not in _SHOWN_ELSEWHERE and not isinstance(value, str)
        ]
        parts: list[RenderableType] = [_format_cells(top, width), Text()]
        if rest:
            parts += [_format_cells(rest, width), Text()]
        parts += [self._curve(width)] if is_single else [self._table(width, height)]
        if self._evaluation:
            parts += [Text(), self._evaluation_line(width)]
        return parts

    def _curve(self, width: int) -> Text:
        """The `avg_G` of a single seed over the run."""
        curve = self._mean_curve.points
        span = (
            f"{format_number(min(curve))} to {format_number(max(curve))}"
            if curve
            else ""
        )
        reason = next((row.get("frozen") for row in self._rows.values()), None)
        curve_text = sparkline(curve, width - len(span) - 14)
        return Text.assemble(
            ("avg_G".ljust(12), "dim"),
            (curve_text, "cyan"),
            f"  {span}",
            (f"\n{_format_frozen(reason)}" if reason else "", "bold red"),
        )

    def _evaluation_line(self, width: int) -> Text:
        room = width - len(self._evaluation) - 14
        room = min(room, width // 4) if room > 4 else 0  # too short to be readable
        curve_text = sparkline(self._evaluation_curve.points, room)
        return Text.assemble(
            ("evaluation".ljust(12), "dim"),
            (curve_text, "cyan"),
            ("  " if curve_text else "") + self._evaluation,
        )

    def _table(self, width: int, height: int) -> Table:
        """A row per seed if there is room, else minimum and maximum over the seeds."""
        table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("seed", no_wrap=True)
        for name in ("ep", "t", "G", "avg_G", "evaluation"):
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        table.add_column("avg_G over time", ratio=1, no_wrap=True, overflow="ellipsis")
        room = width - 50
        rows = self._rows
        if len(rows) <= MAX_SEED_ROWS and len(rows) + 16 <= height:
            for seed in sorted(rows):
                curve = Text(sparkline(self._curves[seed].points, room), "cyan")
                if rows[seed].get("frozen"):
                    curve = Text(_format_frozen(rows[seed]["frozen"]), "bold red")
                result = self._evaluations.get(seed)
                _add_row(table, str(seed), [rows[seed]], [result], curve, _mean)
        else:
            frozen_seeds = [
                str(seed) for seed in sorted(rows) if rows[seed].get("frozen")
            ]
            notes = ["", f"frozen: {', '.join(frozen_seeds)}" if frozen_seeds else ""]
            for (name, reduce), note in zip(_EXTREMES.items(), notes, strict=True):
                text = Text(note, "bold red")
                _add_row(
                    table, name, list(rows.values()), self._results(), text, reduce
                )
        mean = Text(sparkline(self._mean_curve.points, room), "cyan")
        _add_row(table, "mean", list(rows.values()), self._results(), mean, _mean)
        return table

    def _results(self) -> list[float]:
        return list(self._evaluations.values())


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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_EXTREMES = {"min": min, "max": max}


def _add_row(
    table: Table,
    name: str,
    rows: Sequence[Row],
    results: Sequence[float | None],
    curve: Text,
    reduce: Callable[[Sequence[float]], float],
) -> None:
    """Adds a row: the numbers of the seeds, aggregated by `reduce`."""
    alive = [row for row in rows if not row.get("frozen")] or rows
    columns = {key: finite_values(row.get(key) for row in alive) for key in _COLUMNS}
    cells = {key: reduce(values) if values else None for key, values in columns.items()}
    counts = {key: round(x) for key, x in cells.items() if key in ("ep", "t") and x}
    finite_results = finite_values(results)
    result = reduce(finite_results) if finite_results else None
    cell_texts = [format_number(x) for x in (*(cells | counts).values(), result)]
    table.add_row(name, *cell_texts, curve)


def _format_cells(pairs: Sequence[tuple[str, str]], width: int) -> Text:
    """Formats names and numbers in as many columns as fit, row by row."""
    columns = max(1, (width + GAP) // (CELL + GAP))
    cell = (width + GAP) // columns - GAP
    text = Text()
    for i, (name, value) in enumerate(pairs):
        longest = max(len(other) for other, _ in pairs[i % columns :: columns])
        room = max(1, min(longest, cell - len(value) - 1))
        name = name if len(name) <= room else name[: room - 1] + "…"
        text.append(name.ljust(room + 1), "dim")
        last = i + 1 == len(pairs)
        if last or (i + 1) % columns == 0:
            text.append(value if last else f"{value}\n")
        else:
            text.append(value.ljust(cell - room - 1 + GAP))
    return text


def _format_frozen(reason: object) -> str:
    return f"frozen: {reason}" if isinstance(reason, str) else "frozen"


def _format_minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
