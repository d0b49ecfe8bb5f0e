"""Process runs: trains groups of cells, each group in a process of its own."""

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli import errors
from rlcli.runs.durations import deadline_of, max_time_arguments
from rlcli.runs.files import read_json
from rlcli.runs.study_record import Cell
from rlcli.studies.engines.process_pool import ProcessPool
from rlcli.training.stopping.signals import SignalReceiver
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS, Stop
from rlcli.xla.threads import usable_cores

_POLL = 0.05  # seconds between two polls of the processes


class CellEnd(NamedTuple):
    """The outcome of a cell."""

    cell: Cell
    code: int  # the exit code of its process
    message: str  # why the run has failed, or what the process has printed to stderr


# Receives all cells, and those that have ended.
StudyReport = Callable[[Sequence[Cell], Sequence[CellEnd]], None]


def train_groups(
    groups: Sequence[Sequence[Cell]],
    options: Sequence[str],
    *,
    ended: Sequence[CellEnd] = (),
    jobs: int | None = None,
    max_time: str | float | None = None,
    report: StudyReport = lambda *_: None,
    variables: Mapping[str, str] | None = None,
) -> list[CellEnd]:
    """Trains each group of cells in a process, and returns how all of them ended.

    `options` are those of `rlcli study` for each process, which gets the `--max-time`
    that is left; `ended` are cells that have ended before, which are returned first;
    `variables` is the environment of the processes, by default that of this one. The
    others are those of `study`.
    """
    pool = ProcessPool(jobs or usable_cores(), variables)
    processes = _Processes(groups, options, pool, deadline_of(max_time), report)
    ended = [*ended, *processes.run()]
    if processes.stopped_by:
        folder = groups[0][0].study
        text = f"the runs in `{folder}` were stopped; `rlcli resume` continues them"
        Stop(folder, lambda: ended, lambda: text).deliver(processes.stopped_by)
    return ended


def refuse_cell(cell: Cell, error: errors.RlcliError) -> CellEnd:
    """The outcome of a cell that cannot be trained, as its process would print it."""
    return CellEnd(cell, error.code, f"error: {error}")


def describe_end(
    cell: Cell, code: int = errors.USER_ERROR, message: str = ""
) -> CellEnd:
    """How a run has ended, by its folder; `code` if it has none."""
    info = _read_info(cell)
    if not info:
        return CellEnd(cell, code, message)
    code = errors.EXIT_CODES.get(str(info.get("status")), code)
    if info.get("frozen") and code == errors.OK:
        code = errors.SOME_SEEDS_FROZEN
    has_failed = errors.OK < code < errors.OUT_OF_TIME
    reason = str(info.get("reason", "")) if has_failed else ""
    return CellEnd(cell, code, reason or message)


def _read_info(cell: Cell) -> Mapping[str, Any]:
    return read_json(cell.folder / "run.json")


class _Processes:
    """The processes of the runs, each of which trains a group."""

    def __init__(
        self,
        groups: Sequence[Sequence[Cell]],
        options: Sequence[str],
        pool: ProcessPool,
        deadline: float | None,
        report: StudyReport,
    ) -> None:
        self._groups = {str(cells[0].folder): cells for cells in groups}
        self._waiting = [*self._groups]
        self._options = options
        self._pool = pool
        self._deadline = deadline
        all_cells = [cell for cells in groups for cell in cells]
        self._report = lambda: report(all_cells, self._ended)
        self._ended: list[CellEnd] = []
        self._before: dict[Path, Mapping[str, Any]] = {}  # what `run.json` contained
        self._is_stopped = False
        self.stopped_by = ""  # the status of the signal that has stopped the runs

    def run(self) -> list[CellEnd]:
        """Trains all runs, and returns them in the order of their ends."""
        reported = 0.0
        try:
            with SignalReceiver(self._receive):
                while self._pool.running or (self._waiting and not self._is_stopped):
                    self._start()
                    if time.monotonic() - reported >= 1:
                        self._report()
                        reported = time.monotonic()
                    time.sleep(_POLL)
                    self._collect()
        finally:  # after an error, they save a checkpoint
            self._forward(signal.SIGTERM)
        self._report()
        return self._ended

    def _start(self) -> None:
        while self._waiting and self._pool.has_room and not self._is_stopped:
            key = self._waiting.pop(0)
            cells = self._groups[key]
            left = self._seconds_left()
            if left <= 0:
                self._ended += [
                    CellEnd(cell, errors.OUT_OF_TIME, "no time was left to start it")
                    for cell in cells
                ]
                continue
            self._before |= {cell.folder: _read_info(cell) for cell in cells}
            limit = max_time_arguments(left) if left < math.inf else []
            names = [word for cell in cells for word in ("--cell", cell.label)]
            command = ["study", *limit, *self._options, *names]
            self._pool.start(key, [*command, "--", str(cells[0].study)])
            if self._is_stopped:  # by a signal that came before it was running
                self._pool.send_signal(signal.SIGTERM, key)

    def _seconds_left(self) -> float:
        return math.inf if self._deadline is None else self._deadline - time.monotonic()

    def _collect(self) -> None:
        for end in self._pool.collect():
            cells = self._groups[end.key]
            ends = [describe_end(cell, end.code, end.message) for cell in cells]
            is_refused = end.code == errors.USER_ERROR and all(
                _read_info(cell) == self._before[cell.folder] for cell in cells
            )
            if len(cells) == 1 or is_refused:  # the runs are as they were
                ends = [CellEnd(cell, end.code, end.message) for cell in cells]
            self._ended += ends

    def _receive(self, number: int) -> None:
        self.stopped_by = self.stopped_by or STATUS_OF_SIGNALS.get(number, "")
        self._forward(number)

    def _forward(self, number: int) -> None:
        self._is_stopped |= number != signal.SIGUSR1
        self._pool.send_signal(number)


def exit_code(ended: Sequence[CellEnd]) -> int:
    """The exit code of a processes: of a signal, else of an error, else the highest."""
    codes = {each.code for each in ended}
    for code in sorted(codes, reverse=True):
        if code > errors.OUT_OF_TIME:
            return code
    return errors.USER_ERROR if codes & {1, 2} else max(codes, default=errors.OK)
