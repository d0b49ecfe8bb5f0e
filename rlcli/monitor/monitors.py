"""Monitors: print the progress of training to stderr and to `log.txt`.

They draw a live panel in a terminal and in a notebook, and print one line per log point
elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rlcli.errors import paths_as_typed
from rlcli.monitor.lines import (
    HEAD,
    LEGEND,
    Row,
    format_evaluation,
    format_row,
    group_by_point,
    merge_rows,
)
from rlcli.monitor.notebook import NotebookDisplay, is_notebook
from rlcli.monitor.panel import SAVES, STOPPING, RunPanel
from rlcli.quoting import printable
from rlcli.runs.files import open_regular

PERIOD = 0.5  # minimum seconds between two redraws of the panel
TICK = 0.25  # seconds between two checks for changes
IDLE = 1.0  # seconds after which a panel that was not redrawn shows the time
SHARE = 100  # the next redraw waits at least this many times the last one's duration


class Monitor:
    """Shows a run: a panel in a terminal or a notebook, lines elsewhere.

    A context manager, which always restores the terminal. It draws in the caller's
    thread, in less than 1 % of the time. While that thread is busy, for example because
    XLA compiles, another one draws once a second. `quiet` prints nothing. A run that
    another process trains has its own `start_time`, a Unix time. `hint` tells the
    effect of Ctrl-C until `begin`.
    """

    def __init__(
        self,
        *,
        title: str,
        quiet: bool = False,
        console: Console | None = None,
        start_time: float | None = None,
        hint: str = SAVES,
    ) -> None:
        self._console = console or _stderr_console()
        self._is_quiet = quiet  # as the caller wants it
        self._quiet = quiet  # also if the terminal or pipe is closed
        self._log = None
        self._is_notebook = console is None and is_notebook()
        self._live: Live | NotebookDisplay | None = None
        self._is_explained = False
        self._next_redraw = 0.0
        self._last_redraw = 0.0
        self._panel = RunPanel(0, (), title, start_time=start_time, hint=hint)
        self._lock = threading.RLock()
        self._is_stop_requested: Callable[[], object] = lambda: False
        self._end = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Monitor:
        if not self._quiet and (live := self._make_display()) is not None:
            with self._silence_on_failure():
                live.start(refresh=True)
                self._live = live
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._ticker.join()
        self._panel.is_finished = True
        self._draw()
        if self._live is not None:
            # The panel of a run that never began would only show an empty bar.
            self._live.transient = self._panel.is_empty
            with self._silence_on_failure():
                self._live.stop()
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()

    def _make_display(self) -> Live | NotebookDisplay | None:
        """Returns the display of the panel; None if only lines can be printed."""
        if self._is_notebook:
            return NotebookDisplay("")
        if not _can_draw(self._console):
            return None
        return Live(
            self._panel.draw(self._console),
            console=self._console,
            auto_refresh=False,  # `_tick` redraws, less often
            redirect_stdout=sys.stdout.isatty(),  # otherwise stdout carries data
            vertical_overflow="crop",
        )

    def begin(
        self,
        total_steps: int,
        seeds: Sequence[int | str],
        *,
        log_path: str | Path | None = None,
        start: int = 0,
        hint: str = SAVES,
        is_stop_requested: Callable[[], object] = lambda: False,
    ) -> None:
        """Sets the facts that were not known when the monitor was made.

        `seeds` may be the names of runs that are trained together. A resumed run begins
        at step `start`. The file at `log_path` gets the lines, also if the monitor is
        quiet. `is_stop_requested` is asked a few times a second.
        """
        self._is_stop_requested = is_stop_requested
        if log_path is not None and self._log is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._log = open_regular(
                Path(log_path), flags, "a", encoding="utf-8", buffering=1
            )
        with self._lock:
            panel = self._panel
            panel.total_steps, panel.seeds, panel.step = total_steps, [*seeds], start
            panel.hint = hint
            self._is_explained = start > 0  # a resumed run continues its log
            self._draw()

    def set_phase(self, phase: str) -> None:
        """Sets the phase of the run in the panel, from the next redraw on."""
        self._panel.phase = phase

    @contextlib.contextmanager
    def _silence_on_failure(self) -> Iterator[None]:
        """Stops printing if the terminal or pipe is closed; training continues."""
        try:
            yield
        except (OSError, ValueError):  # ValueError: the stream is closed
            live, self._live, self._quiet = self._live, None, True
            if live is not None:
                with contextlib.suppress(OSError, ValueError):
                    live.stop()

    def update(
        self, rows: Sequence[Row], step: int, evaluation: Sequence[Row] | None = None
    ) -> None:
        """Shows the rows of a chunk, one per log point and seed, and of an evaluation.

        `step` is the current step.
        """
        with self._lock:
            self._panel.add(rows, step, evaluation or ())
        for point in group_by_point(rows):
            if not self._is_explained:
                self._write(f"{HEAD} {LEGEND}")
                self._is_explained = True
            self._write(format_row(merge_rows(point)))
        if evaluation:
            self._write(f"{HEAD} evaluation: {format_evaluation(evaluation)}")
        self.refresh()

    def refresh(self, idle: float = 0.0) -> None:
        """Redraws the panel, unless it was drawn a moment, or `idle` seconds, ago."""
        with self._lock:
            now = time.perf_counter()
            if now >= self._next_redraw and now - self._last_redraw >= idle:
                self._draw()

    def end_at(self, end_time: float | None) -> None:
        """Stops the clock at a Unix time."""
        self._panel.end_time = end_time

    def message(self, text: str) -> None:
        """Prints a message above the panel, or as a line."""
        text = paths_as_typed(text)
        self._write(f"{HEAD} {text}")
        if self._live is not None:
            with self._silence_on_failure():
                self._print(printable(text))

    def warn(self, text: str) -> None:
        """Prints a message, also if the monitor is quiet."""
        self.message(text)
        if self._is_quiet:
            with contextlib.suppress(OSError, ValueError):  # as `_silence_on_failure`
                line = f"{HEAD} {printable(paths_as_typed(text))}"
                print(line, file=self._console.file, flush=True)

    def note(self, text: str) -> None:
        """Prints a message without the prefix of the log, and not into the log."""
        if self._live is not None or not self._quiet:
            with self._silence_on_failure():
                self._print(printable(paths_as_typed(text)))

    def _print(self, text: str) -> None:
        """Prints a line above the panel, or below it in a notebook."""
        if isinstance(self._live, Live):
            self._live.console.print(Text(text))
        else:
            print(text, file=self._console.file, flush=True)

    def _write(self, text: str) -> None:
        text = printable(text)
        if self._log is not None:
            try:
                self._log.write(text + "\n")
            except OSError:  # a full disk: writing the metrics raises an error
                self._log = None
        if self._live is None and not self._quiet:
            with self._silence_on_failure():
                self._print(text)

    def _draw(self) -> None:
        if self._live is None:
            return
        with self._lock, self._silence_on_failure():
            start = time.perf_counter()
            panel = self._panel.draw(self._live.console)
            self._live.update(panel, refresh=True)
            self._last_redraw = time.perf_counter()
            self._next_redraw = self._last_redraw + max(
                PERIOD, SHARE * (self._last_redraw - start)
            )

    def _tick(self) -> None:
        """Redraws while the caller's thread is busy; shows that a stop was requested.

        A redraw costs a few milliseconds, once a second at most.
        """
        while not self._end.wait(TICK):
            if not self._panel.is_stopping and self._is_stop_requested():
                self._panel.is_stopping = True
                self._write(f"{HEAD} {STOPPING}")
                self._draw()
            else:
                self.refresh(IDLE)


class _Stderr(Console):
    """A console on stderr that raises for a closed pipe, instead of exiting."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _stderr_console() -> Console:
    # Rich would treat FORCE_COLOR, which CI services set, as a terminal.
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return _Stderr(stderr=True, force_terminal=None if is_terminal else False)


def can_show_panel() -> bool:
    """Whether a run of this process would show the live panel."""
    return _can_draw(_stderr_console())


def _can_draw(console: Console) -> bool:
    """Whether the console is an interactive terminal that can move its cursor."""
    is_plain = console.is_dumb_terminal or console.options.ascii_only
    return console.is_terminal and not is_plain and not os.environ.get("CI")
