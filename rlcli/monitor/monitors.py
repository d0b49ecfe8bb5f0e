"""Monitors: print the progress of training to stderr and to `log.txt`.

They draw a live panel in a terminal, and print one line per log point elsewhere.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from rich.console import Console
from rich.live import Live
from rich.text import Text

from rlcli.monitor.lines import (
    HEAD,
    LEADING_FIELDS,
    Row,
    format_evaluation,
    format_row,
    group_by_point,
    merge_rows,
)
from rlcli.monitor.panel import RunPanel
from rlcli.runs.files import open_regular
from rlcli.terminal import printable

__all__ = ["Monitor", "TrainMonitor", "format_row"]

PERIOD = 0.5  # minimum seconds between two redraws of the panel
SHARE = 100  # the next redraw waits at least this many times the last one's duration


class TrainMonitor(gymnasium.Wrapper, RecordConstructorArgs):
    """A Gymnasium wrapper that logs episodes, for custom training loops.

    At the end of each episode it prints a line to stderr, like coax's wrapper of the
    same name:

        [TrainMonitor|INFO] ep: 102, T: 9,953, G: 200, avg_r: 1, avg_G: 195, t: 200, …

    `ep` is the number of the episode, `T` the total number of steps, `t` the steps of
    the episode, `G` and `avg_r` the sum and the mean of its rewards, `avg_G` the
    running mean

        avg_G ← avg_G + (G − avg_G) / min(episodes finished, 10)

    and `dt_ms` the milliseconds per step of the episode, including learning.
    """

    def __init__(self, env: gymnasium.Env, *, quiet: bool = False) -> None:
        RecordConstructorArgs.__init__(self, quiet=quiet)
        gymnasium.Wrapper.__init__(self, env)
        self.quiet = quiet
        self.ep = 0
        self.T = 0
        self.avg_G = 0.0
        self._finished = 0
        self._metrics: dict[str, list[float]] = {}
        self._begin()

    @property
    def avg_r(self) -> float:
        """The mean reward of the episode; nan before its first step."""
        return self.G / self.t if self.t else math.nan

    @property
    def dt_ms(self) -> float:
        """Milliseconds per step of the episode; nan before its first step."""
        return 1000.0 * self._elapsed / self.t if self.t else math.nan

    def record_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Adds the means of numbers, such as losses, to the next line."""
        if not isinstance(metrics, Mapping):
            raise TypeError(f"expected a mapping of metrics, got {type(metrics)}")
        for name, value in metrics.items():
            self._metrics.setdefault(name, []).append(float(value))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; episodes without a step are not counted."""
        if self.t and not self._is_over:
            self._print()  # an incomplete episode does not enter the average
        if self.t or not self.ep:
            self.ep += 1
        result = self.env.reset(seed=seed, options=options)
        self._begin()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment, and updates the statistics."""
        result = self.env.step(action)
        self.T += 1
        self.t += 1
        self.G += float(result[1])
        self._elapsed = time.perf_counter() - self._start
        self._is_over = bool(result[2] or result[3])
        if self._is_over:
            self._finished += 1
            self.avg_G += (self.G - self.avg_G) / min(self._finished, 10)
            self._print()
        return result

    def _begin(self) -> None:
        self.t = 0
        self.G = 0.0
        self._is_over = False
        self._elapsed = 0.0
        self._start = time.perf_counter()

    def _print(self) -> None:
        if not self.quiet:
            means = {name: float(np.mean(x)) for name, x in self._metrics.items()}
            row = {name: getattr(self, name) for name in LEADING_FIELDS if name != "dt"}
            print(
                format_row(row | {"dt": self.dt_ms} | means),
                file=sys.stderr,
                flush=True,
            )
        self._metrics = {}


class Monitor:
    """Shows the progress of a run: a panel in a terminal, lines elsewhere.

    A context manager, which always restores the terminal. It draws in the caller's
    thread, in less than 1 % of the time. `quiet` prints nothing; the file at `log_path`
    always gets the lines. A resumed run begins at step `start`. A run that another
    process trains has its own `start_time`, a Unix time, and `hint` says what Ctrl-C
    does.
    """

    def __init__(
        self,
        total_steps: int,
        seeds: Sequence[int],
        *,
        title: str,
        quiet: bool = False,
        console: Console | None = None,
        log_path: str | Path | None = None,
        start: int = 0,
        start_time: float | None = None,
        hint: str = "Ctrl-C saves and stops",
    ) -> None:
        self._console = console or _stderr_console()
        self._quiet = quiet
        self._log_path = log_path
        self._log = None
        self._live = None
        self._next_redraw = 0.0
        self._panel = RunPanel(
            total_steps, seeds, title, start, start_time=start_time, hint=hint
        )

    def __enter__(self) -> Monitor:
        if self._log_path is not None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._log = open_regular(
                Path(self._log_path), flags, "a", encoding="utf-8", buffering=1
            )
        if not self._quiet and _can_draw(self._console):
            live = Live(
                self._panel.draw(self._console),
                console=self._console,
                auto_refresh=False,  # a thread would compete for the interpreter
                redirect_stdout=sys.stdout.isatty(),  # otherwise stdout carries data
            )
            with self._silence_on_failure():
                live.start(refresh=True)
                self._live = live
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._panel.is_finished = True
        self._draw()
        if self._live is not None:
            with self._silence_on_failure():
                self._live.stop()
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()

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
        self._panel.add(rows, step, evaluation or ())
        for point in group_by_point(rows):
            self._write(format_row(merge_rows(point)))
        if evaluation:
            self._write(f"{HEAD} evaluation: {format_evaluation(evaluation)}")
        self.refresh()

    def refresh(self) -> None:
        """Redraws the panel, unless it was drawn a moment ago."""
        if time.perf_counter() >= self._next_redraw:
            self._draw()

    def end_at(self, end_time: float | None) -> None:
        """Stops the clock at a Unix time."""
        self._panel.end_time = end_time

    def message(self, text: str) -> None:
        """Prints a message above the panel, or as a line."""
        self._write(f"{HEAD} {text}")
        if self._live is not None:
            with self._silence_on_failure():
                self._live.console.print(Text(printable(text)))

    def _write(self, text: str) -> None:
        text = printable(text)
        if self._log is not None:
            try:
                self._log.write(text + "\n")
            except OSError:  # a full disk: writing the metrics raises an error
                self._log = None
        if self._live is None and not self._quiet:
            with self._silence_on_failure():
                print(text, file=self._console.file, flush=True)

    def _draw(self) -> None:
        if self._live is not None:
            start = time.perf_counter()
            with self._silence_on_failure():
                self._live.update(self._panel.draw(self._console), refresh=True)
            end = time.perf_counter()
            self._next_redraw = end + max(PERIOD, SHARE * (end - start))


class _Stderr(Console):
    """A console on stderr that raises for a closed pipe, instead of exiting."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _stderr_console() -> Console:
    # Rich would treat FORCE_COLOR, which CI services set, as a terminal.
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return _Stderr(stderr=True, force_terminal=None if is_terminal else False)


def _can_draw(console: Console) -> bool:
    """Whether the console is an interactive terminal that can move its cursor."""
    is_plain = console.is_dumb_terminal or console.options.ascii_only
    return console.is_terminal and not is_plain and not os.environ.get("CI")
