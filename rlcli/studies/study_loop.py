"""Study loop: trains the cells that a source chooses, until it chooses no more.

Every study is trained by this loop, on every engine. The cells of a grid are known from
the beginning; a search, or a test that adds seeds, chooses some when others have ended.
A job whose process crashes is continued, and one whose runs another process still
trains waits for it.
"""

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli import errors
from rlcli.runs import locks
from rlcli.runs.durations import deadline_of, max_time_arguments
from rlcli.runs.files import read_json
from rlcli.runs.locate import change_members
from rlcli.runs.run_folder import is_run
from rlcli.runs.study_record import Cell, Study, record_study
from rlcli.studies.engines.jobs import Engine, Job, ProcessEnd
from rlcli.studies.shared_programs import group_cells
from rlcli.training.stopping.signals import SignalReceiver
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS

_LOOK = 10  # periods of the engine between two looks at the runs in training
_REPORT = 20  # and between two reports
ATTEMPTS = 3  # processes of a job, if they crash
# Exit codes after which another process would end in the same way.
_ANSWERS = (
    *(errors.OK, errors.USER_ERROR, errors.USAGE),
    *(errors.SOME_SEEDS_FROZEN, errors.OUT_OF_TIME),
)


class CellEnd(NamedTuple):
    """The outcome of a cell."""

    cell: Cell
    code: int  # the exit code of its process
    message: str  # why the run has failed, or what the process has printed to stderr
    is_stopped: bool = False  # by a signal, or for lack of time: it can continue


# Receives the cells that were chosen, and those that have ended.
StudyReport = Callable[[Sequence[Cell], Sequence[CellEnd]], None]


class CellSource(NamedTuple):
    """Chooses the cells of a study; it is all that studies differ in.

    A source finds in the study's folder which cells it has chosen before: a process may
    be killed at any time.
    """

    # The next cells, given all that have ended; asked as long as there is room. None:
    # not until another ends, or at all, so the study ends when no cell is in training.
    choose: Callable[[Sequence[CellEnd]], Sequence[Cell]] = lambda _: ()
    # Is told how a cell has ended.
    receive: Callable[[CellEnd], None] = lambda _: None
    # Given the jobs in training, the keys of those to stop, whose cells were stopped.
    find_stopped: Callable[[Sequence[Job]], Sequence[str]] = lambda _: ()
    # Is told the number of processes, once the runs of a store are there.
    begin: Callable[[int], None] = lambda _: None
    # Is told the status that `StudyLoop.run` returns, or `killed` after an error.
    end: Callable[[str], None] = lambda _: None
    # Cells that failed do not continue, and the source chooses all that are left.
    are_trials: bool = False


NOTHING_MORE = CellSource()  # of a grid, whose cells are known


class StudyLoop:
    """Trains the cells of a source on an engine, in processes of `rlcli study`.

    `options` are those of each process, which gets the `--max-time` that is left.
    `trust`: whether cells that have not begun may import code. `ended`: cells that have
    ended before, of which the source is told no more.
    """

    def __init__(
        self,
        study: Study,
        source: CellSource,
        engine: Engine,
        options: Sequence[str],
        *,
        trust: bool,
        ended: Sequence[CellEnd] = (),
        max_time: str | float | None = None,
        report: StudyReport = lambda *_: None,
    ) -> None:
        self.cells = [each.cell for each in ended]
        self._ends = {each.cell.label: each for each in ended}
        self._study = study.folder
        self._recorded = {cell.label for cell in study.cells}
        self._source = source
        self._engine = engine
        self._options = tuple(options)
        self._trust = trust
        self._report = report
        self._deadline = deadline_of(max_time)
        self._before: dict[str, Mapping[str, Any]] = {}  # `run.json`, by labels
        # By the keys of jobs, which are the same when a job continues.
        self._groups: dict[str, Sequence[Cell]] = {}
        self._running: dict[str, Job] = {}
        self._crashes: Counter[str] = Counter()
        self._stopped: set[str] = set()
        self._waiting: list[Job] = []
        self._is_stopping = False  # then no job starts
        self._status = ""
        self._looked_at = self._reported_at = 0.0

    @property
    def ended(self) -> list[CellEnd]:
        """The cells that have ended."""
        return [*self._ends.values()]

    def run(self, groups: Sequence[Sequence[Cell]] = ()) -> str:
        """Trains `groups`, each in a process, and then what the source chooses.

        Returns `out_of_time`, the status of a signal that has stopped it, or "".
        """
        status = "killed"
        try:
            self._source.begin(self._engine.jobs)
            with SignalReceiver(self._handle):
                self._submit(groups)
                while True:
                    self._advance()
                    self._choose()
                    self._tell()
                    if not self._running and (self._is_stopping or not self._waiting):
                        break
                    time.sleep(self._engine.period)
            self._tell(force=True)
            status = self._status
        finally:  # after an error, they save a checkpoint
            self._is_stopping = True
            self._engine.send_signal(signal.SIGTERM)
            self._source.end(status)
        return status

    def _handle(self, number: int) -> None:
        status = STATUS_OF_SIGNALS.get(number, "")
        self._status = self._status or status
        self._is_stopping |= bool(status)
        self._engine.send_signal(number)

    def _choose(self) -> None:
        """Asks for cells as long as one could start at once, and begins them."""
        while self._engine.has_room and not (self._waiting or self._status):
            cells = self._source.choose(self.ended)
            if not cells:
                return
            if not self._recorded.issuperset(cell.label for cell in cells):
                record_study(self._study, cells)
                self._recorded.update(cell.label for cell in cells)
            groups, refused = group_cells(cells, trust=self._trust)
            self._submit(groups)
            for cell in cells:
                if cell.label in refused:
                    self.cells.append(cell)
                    self._end_cell(refuse_cell(cell, refused[cell.label]))
            self._advance()

    def _submit(self, groups: Sequence[Sequence[Cell]]) -> None:
        for group in groups:
            labels = tuple(cell.label for cell in group)
            job = Job(self._study, labels, self._options, self._source.are_trials)
            self.cells += [cell for cell in group if cell.label not in self._before]
            self._before |= {cell.label: _read_info(cell) for cell in group}
            self._groups[job.key] = group
            self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        self._stopped.discard(job.key)
        self._waiting.append(job)

    def _advance(self) -> None:
        """Starts jobs, receives the ends of others, and stops those to be stopped."""
        for job in [*self._waiting]:
            if self._is_stopping or not self._engine.has_room:
                break
            if not job.is_busy:
                self._waiting.remove(job)
                self._start(job)
        for end in self._engine.collect():
            self._receive(self._running.pop(end.key), end)
        if time.monotonic() - self._looked_at >= _LOOK * self._engine.period:
            self._looked_at = time.monotonic()
            for key in self._source.find_stopped([*self._running.values()]):
                if key not in self._stopped:  # a second signal would end it at once
                    self._stopped.add(key)
                    self._engine.send_signal(signal.SIGTERM, key)

    def _start(self, job: Job) -> None:
        """Starts a job, or ends it if it needs no process, or there is no time."""
        if job.is_trial and job.has_ended:
            self._end(job, errors.OK, "")
            return
        if job.is_trial and all(map(is_run, job.folders)):
            change_members(job.runs)
        started = job
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                self._end(job, errors.OUT_OF_TIME, "no time was left to start it")
                return
            limit = (*max_time_arguments(left), *job.options)
            started = job._replace(options=limit)
        self._running[job.key] = job
        self._engine.start(started)
        if self._is_stopping:  # by a signal that came before it was running
            self._engine.send_signal(signal.SIGTERM, job.key)

    def _receive(self, job: Job, end: ProcessEnd) -> None:
        """Ends a job, or lets it continue in another process after a crash."""
        key, message = job.key, end.message
        if end.code == errors.USER_ERROR and job.is_busy:
            self._enqueue(job)  # another process began its cells at the same time
            return
        has_ended = job.has_ended
        is_stopped = not has_ended and (key in self._stopped or self._is_stopping)
        if not (has_ended or is_stopped or end.code in _ANSWERS):
            self._crashes[key] += 1
            if self._crashes[key] < ATTEMPTS:
                self._enqueue(job)
                return
            message = f"its process ended {ATTEMPTS} times with exit code {end.code}"
            if end.message:
                last = end.message.splitlines()[-1]
                message += f": {errors.shorten(last, 200)}"
        self._end(job, end.code, message, is_stopped=is_stopped)

    def _end(
        self, job: Job, code: int, message: str, *, is_stopped: bool = False
    ) -> None:
        """Records how the cells of a job have ended."""
        cells = self._groups.pop(job.key)
        is_stopped |= code == errors.OUT_OF_TIME
        is_refused = code == errors.USER_ERROR and all(
            _read_info(cell) == self._before[cell.label] for cell in cells
        )
        for cell in cells:
            end = CellEnd(cell, code, message)
            if len(cells) > 1 and not is_refused:  # else the runs are as they were
                end = describe_end(cell, code, message)
            self._end_cell(end._replace(is_stopped=is_stopped))

    def _end_cell(self, end: CellEnd) -> None:
        if end.code == errors.OUT_OF_TIME:
            self._status = self._status or "out_of_time"
        self._ends.pop(end.cell.label, None)  # it was stopped before
        self._ends[end.cell.label] = end
        self._source.receive(end)

    def _tell(self, *, force: bool = False) -> None:
        period = _REPORT * self._engine.period
        if force or time.monotonic() - self._reported_at >= period:
            self._reported_at = time.monotonic()
            self._report(self.cells, self.ended)


@contextlib.contextmanager
def announce(study: Path) -> Iterator[None]:
    """Context of a process that begins cells: it holds the lock of the study, if free.

    Others see that cells will begin. A second such process is no harm: a cell that
    another one trains is waited for.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(locks.LockedError):
            stack.enter_context(locks.hold(study))
            stack.callback((study / locks.FILE_NAME).unlink, missing_ok=True)
        yield


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
