"""Panel: the live display of a run in a terminal."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlcli.monitor.lines import (
    LEGEND,
    NOT_METRICS,
    Row,
    drop_details,
    format_evaluation,
    group_by_point,
    merge_rows,
    name_of,
)
from rlcli.monitor.seeds_table import (
    BoundedSeries,
    SeedRows,
    format_cells,
    format_frozen_reason,
    format_time,
    mean,
    row_count,
    seeds_table,
    sparkline,
)
from rlcli.quoting import printable
from rlcli.runs.formatting import format_number
from rlcli.runs.metric_labels import label_metric

MARGIN = 2  # right of the panel: room for the `^C` that the terminal prints
SAVES = "Ctrl-C saves and stops"
STOPPING = "stopping: writing a checkpoint …"
_FRAME = 3  # lines of the frame, and one for the cursor
_NEVER_DROPPED = 9
_MIN_BAR = 8  # characters; a shorter bar is not readable
_LABEL = 12  # characters in front of a curve
_RATES = ("steps", "updates")
_SHOWN_ELSEWHERE = NOT_METRICS | {"seeds", "runs", "min_avg_G", "max_avg_G"}


class _Block(NamedTuple):
    """Lines of the panel; those with the lowest `priority` are dropped first."""

    name: str
    priority: int
    lines: list[RenderableType]
    height: int
    can_shrink: bool = False  # whether some of its lines are useful without the others


class RunPanel:
    """The data of a run's panel, and how to draw it."""

    def __init__(
        self,
        total_steps: int,
        seeds: Sequence[int | str],
        title: str,
        start: int = 0,
        *,
        start_time: float | None = None,
        hint: str = SAVES,
    ) -> None:
        """`total_steps` is 0 before it is known. `seeds` may be names of runs."""
        self.total_steps = total_steps
        self.seeds = list(seeds)
        self.title = printable(title)
        self.hint = hint
        self.step = start
        self.phase = "compiling"  # what the run is doing
        self.is_stopping = False
        self.is_finished = False
        self.end_time: float | None = None
        self._is_watched = start_time is not None  # another process trains the run
        self._start = time.time() if start_time is None else start_time
        self._first: tuple[float, int] | None = None  # time and step of the first rows
        self._results = SeedRows({}, {}, {}, BoundedSeries())
        self._evaluation_curve = BoundedSeries()
        self._evaluation = ""

    def add(self, rows: Sequence[Row], step: int, evaluation: Sequence[Row]) -> None:
        """Adds the rows of log points and of an evaluation."""
        self.step = step
        # Excludes the first steps from the speed: they include the compilation.
        self._first = self._first or self._first_point(rows, step)
        results = self._results
        for row in rows:
            results.rows[name_of(row)] = row
            curve = results.curves.setdefault(name_of(row), BoundedSeries())
            curve.add(row.get("avg_G"))
        for point in group_by_point(rows):
            results.mean_curve.add(merge_rows(point).get("avg_G"))
        if evaluation:
            means = {name_of(row): row["evaluation"]["mean"] for row in evaluation}
            results.evaluations.update(means)
            self._evaluation = format_evaluation(evaluation)
            self._evaluation_curve.add(mean(list(means.values())))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show: the run has not begun."""
        return not self.total_steps and not self._results.rows

    def _first_point(self, rows: Sequence[Row], step: int) -> tuple[float, int] | None:
        """Time and step of the first row since the start; of now if there are none.

        Without a row, nothing says when another process was at this step.
        """
        if not rows:
            return None if self._is_watched else (time.time(), step)
        points = ((row.get("time") or time.time(), row["T"]) for row in rows)
        return next((point for point in points if point[0] >= self._start), None)

    def draw(self, console: Console) -> RenderableType:
        """Draws the panel for the current size of the console.

        Where it is too small, the bar and the rates are left out first, and the returns
        never.
        """
        width = console.width - MARGIN - 4  # the frame
        blocks = _fit(self._blocks(width, console.height), console.height - _FRAME)
        lines = [line for block in blocks for line in block.lines]
        title = Text.assemble((self.title, "bold"))
        if len(self.seeds) > 1:
            kind = "runs" if isinstance(self.seeds[0], str) else "seeds"
            title.append(f" · {len(self.seeds)} {kind}")
        if self.total_steps and not any(block.name == "progress" for block in blocks):
            title.append(f" · {self._percent()}")
        subtitle = Text() if self.is_finished else self._subtitle(width)
        for text in (title, subtitle):  # a longer one would widen the panel
            text.truncate(width - 2, overflow="ellipsis")
        return Panel(
            Group(*lines),
            box=ROUNDED,
            title=title,
            title_align="left",
            subtitle=subtitle or None,
            subtitle_align="right",
            border_style="dim",
            width=console.width - MARGIN,
        )

    def _blocks(self, width: int, height: int) -> list[_Block]:
        """All blocks from top to bottom."""
        progress = _Block("progress", 2, [self._progress(width)], 1)
        if not self._results.rows:
            text = f"{self.phase} …" if not self.is_finished else "no log point reached"
            return [progress, _texts("returns", _NEVER_DROPPED, [Text(text)])]
        row = drop_details(merge_rows([*self._results.rows.values()]))
        row = {**row, "T": self.step}  # as the bar
        is_single = len(self._results.rows) == 1
        names = ("ep", "T", "t", "G", "avg_r") if is_single else ("ep", "T", "avg_r")
        counts = [(name, row.get(name)) for name in names]
        # None before there is one, such as that of updates before the first.
        rates = [
            (f"{rate}/s", row.get(f"{rate}_per_second") or None) for rate in _RATES
        ]
        metrics = [
            (printable(label_metric(name)), value)
            for name, value in row.items()
            if name not in _SHOWN_ELSEWHERE and not isinstance(value, str)
        ]
        cells = [("dt", f"{format_number(row['dt'])} ms")] if "dt" in row else []
        blocks = [
            progress,
            _texts("counts", 5, format_cells(_numbers(counts), width)),
            _texts("rates", 3, format_cells([*cells, *_numbers(rates)], width)),
            _texts("metrics", 4, format_cells(_numbers(metrics), width))._replace(
                can_shrink=True
            ),
        ]
        evaluation = self._evaluation_lines(width)
        if is_single:
            blocks.append(_texts("returns", _NEVER_DROPPED, self._curve(width, row)))
        else:
            room = height - _FRAME - len(evaluation)
            table = seeds_table(self._results, width, room)
            size = row_count(len(self._results.rows), room)
            blocks.append(_Block("returns", _NEVER_DROPPED, [table], size))
        blocks.append(_texts("evaluation", 8, evaluation))
        blocks.append(_texts("legend", 0, _wrap(LEGEND, width)))
        return [block for block in blocks if block.height]

    def _percent(self) -> str:
        return f"{100 * min(self.step / self.total_steps, 1.0):.0f} %"

    def _progress(self, width: int) -> RenderableType:
        """The bar, the steps and the clock; the bar is left out where it is narrow."""
        clock, left = self._clock()
        if not self.total_steps:
            return Text(clock)
        texts = [self._percent(), f"{self.step:,} of {self.total_steps:,} steps"]
        shown = texts
        for more in [[f"{clock}, {left}"]] * bool(left) + [[clock], []]:
            shown = [*texts, *more]
            if sum(map(len, shown)) + 2 * len(shown) <= width:
                break
        room = width - sum(map(len, shown)) - 2 * len(shown)
        if room < _MIN_BAR:
            return Text("  ".join(shown), no_wrap=True, overflow="ellipsis")
        done = min(self.step / self.total_steps, 1.0)
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(ratio=1)
        for _ in shown:
            grid.add_column(no_wrap=True)
        grid.add_row(ProgressBar(total=1.0, completed=done), *shown)
        return grid

    def _clock(self) -> tuple[str, str]:
        """The time since the start, and the time left, "" if it is not known."""
        now = time.time() if self.end_time is None else self.end_time
        spent = f"{format_time(now - self._start)} elapsed"
        if self.is_finished or self._first is None or self.step <= self._first[1]:
            return spent, ""
        pace = (now - self._first[0]) / (self.step - self._first[1])
        left = format_time(pace * max(self.total_steps - self.step, 0))
        return spent, f"{left} left"

    def _subtitle(self, width: int) -> Text:
        if self.is_stopping:
            hint = "; Ctrl-C again stops at once"
            long = STOPPING + hint
            return Text(long if len(long) <= width else STOPPING, "bold yellow")
        phase = f"{self.phase} · " if self._results.rows else ""
        return Text(f"{phase}{self.hint}", "dim")

    def _curve(self, width: int, row: Row) -> list[Text]:
        """The `avg_G` of a single seed, now and over the run; why it is frozen."""
        lines = []
        if self._results.mean_curve.points:
            curve = self._results.mean_curve.points
            value = format_number(row.get("avg_G"))
            span = f"{format_number(min(curve))} to {format_number(max(curve))}"
            room = width - len(span) - len(value) - 16
            lines.append(
                Text.assemble(
                    ("avg_G".ljust(_LABEL), "dim"),
                    f"{value}  ",
                    (sparkline(curve, room), "cyan"),
                    f"  {span}" if room > 0 else "",
                    no_wrap=True,
                    overflow="ellipsis",
                )
            )
        if row.get("frozen"):
            lines += _wrap(format_frozen_reason(row["frozen"]), width, "bold red")
        return lines

    def _evaluation_lines(self, width: int) -> list[Text]:
        """The last evaluation in the lines that it needs, with a curve if it fits."""
        if not self._evaluation:
            return []
        room = width - len(self._evaluation) - _LABEL - 2
        room = min(room, width // 4) if room > 4 else 0  # too short to be readable
        curve_text = sparkline(self._evaluation_curve.points, room)
        start = f"{curve_text}  " if curve_text else ""
        first, *rest = _wrap(self._evaluation, width - _LABEL - len(start), "")
        label = ("evaluation".ljust(_LABEL), "dim")
        indented = [Text(" " * _LABEL).append_text(line) for line in rest]
        return [Text.assemble(label, (start, "cyan"), first), *indented]


def _fit(blocks: list[_Block], room: int) -> list[_Block]:
    """The blocks that fit in `room` lines, with empty lines between if possible."""
    blocks = [*blocks]
    for block in sorted(blocks, key=lambda block: block.priority):
        excess = sum(other.height for other in blocks) - room
        if excess <= 0 or block.priority == _NEVER_DROPPED:
            break
        index = blocks.index(block)
        kept = block.lines[: max(0, block.height - excess)] if block.can_shrink else []
        shrunk = block._replace(lines=kept, height=len(kept))
        blocks[index : index + 1] = [shrunk] * bool(kept)
    if sum(block.height for block in blocks) + len(blocks) - 1 > room:
        return blocks
    spaced = [_Block("", 1, [Text()], 1), *blocks[:1]]
    for block in blocks[1:]:
        # The rates stand directly below the counts.
        gap = [] if block.name == "rates" else [_Block("", 1, [Text()], 1)]
        spaced += [*gap, block]
    return spaced[1:]


def _numbers(pairs: Sequence[tuple[str, object]]) -> list[tuple[str, str]]:
    """The names and numbers of a block; without names that have no number."""
    return [
        (name, format_number(value))  # type: ignore[arg-type] # of a row: a number
        for name, value in pairs
        if value is not None
    ]


def _texts(name: str, priority: int, lines: Sequence[Text]) -> _Block:
    return _Block(name, priority, [*lines], len(lines))


def _wrap(text: str, width: int, style: str = "dim") -> list[Text]:
    console = Console(width=max(1, width))
    return [*Text(text, style).wrap(console, max(1, width))]
