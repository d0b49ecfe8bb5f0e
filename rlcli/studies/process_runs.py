"""Process runs: trains groups of cells, each group by a job of an engine."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli import errors
from rlcli.runs.durations import deadline_of
from rlcli.runs.files import read_json
from rlcli.runs.study_record import Cell
from rlcli.studies.engines.jobs import Engine, Job, JobEnd, JobQueue
from rlcli.training.stopping.signals import SignalReceiver
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS, Stop


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
    engine: Engine,
    *,
    ended: Sequence[CellEnd] = (),
    max_time: str | float | None = None,
    report: StudyReport = lambda *_: None,
) -> list[CellEnd]:
    """Trains each group of cells in a process, and returns how all of them ended.

    `options` are those of `rlcli study` for each process, which gets the `--max-time`
    that is left; `ended` are cells that have ended before, which are returned first.
    The others are those of `study`.
    """
    queue = JobQueue(engine, deadline_of(max_time))
    ended = [*ended]
    cells = [cell for group in groups for cell in group]
    by_folder = {cell.folder: cell for cell in cells}
    before = {cell.folder: _read_info(cell) for cell in cells}
    stopped_by, reported = "", 0.0

    def receive(number: int) -> None:
        nonlocal stopped_by
        stopped_by = stopped_by or STATUS_OF_SIGNALS.get(number, "")
        if number == signal.SIGUSR1:
            queue.forward(number)
        else:
            queue.stop_all(number)

    try:
        with SignalReceiver(receive):
            for group in groups:
                labels = tuple(cell.label for cell in group)
                queue.submit(Job(labels[0], group[0].study, labels, tuple(options)))
            while not queue.is_empty:
                for end in queue.advance():
                    own = [by_folder[folder] for folder in end.job.folders]
                    ended += _describe_job(end, own, before)
                if time.monotonic() - reported >= 1:
                    report(cells, ended)
                    reported = time.monotonic()
                queue.wait()
    finally:  # after an error, they save a checkpoint
        queue.stop_all(signal.SIGTERM)
    report(cells, ended)
    if stopped_by:
        folder = groups[0][0].study
        text = f"the runs in `{folder}` were stopped; `rlcli resume` continues them"
        Stop(folder, lambda: ended, lambda: text).deliver(stopped_by)
    return ended


def _describe_job(
    end: JobEnd, cells: Sequence[Cell], before: Mapping[Path, Mapping[str, Any]]
) -> list[CellEnd]:
    """How the cells of a job have ended; `before` was in each `run.json`."""
    is_refused = end.code == errors.USER_ERROR and all(
        _read_info(cell) == before[cell.folder] for cell in cells
    )
    if len(cells) == 1 or is_refused:  # the runs are as they were
        return [CellEnd(cell, end.code, end.message) for cell in cells]
    return [describe_end(cell, end.code, end.message) for cell in cells]


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


def exit_code(ended: Sequence[CellEnd]) -> int:
    """The exit code of cells: of a signal, else of an error, else the highest."""
    codes = {each.code for each in ended}
    for code in sorted(codes, reverse=True):
        if code > errors.OUT_OF_TIME:
            return code
    return errors.USER_ERROR if codes & {1, 2} else max(codes, default=errors.OK)
