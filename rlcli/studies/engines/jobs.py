"""Jobs: cells of a study, trained by a process until they have ended.

A job has one cell, or several that are trained together as one program. Its process is
`rlcli study FOLDER --cell NAME`, which begins or continues them. A job that crashes is
continued, and one that another process still trains waits for it.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from rlcli.errors import (
    OK,
    OUT_OF_TIME,
    SOME_SEEDS_FROZEN,
    USAGE,
    USER_ERROR,
    shorten,
)
from rlcli.runs.durations import max_time_arguments
from rlcli.runs.locate import change_members
from rlcli.runs.records import COMPLETE
from rlcli.runs.run_folder import Run, is_run
from rlcli.studies.engines.local_engine import ProcessEnd

ATTEMPTS = 3  # processes of a job, if they crash
# Exit codes after which another process would end in the same way.
_ANSWERS = (OK, USER_ERROR, USAGE, SOME_SEEDS_FROZEN, OUT_OF_TIME)
ENDED = (*COMPLETE, "failed")  # the statuses of trials that do not continue


class Job(NamedTuple):
    """Cells of a study that have to be trained to their ends, by one process."""

    study: Path  # the folder of the study
    labels: tuple[str, ...]  # of the cells
    options: tuple[str, ...] = ()  # of `rlcli study`
    # Trials that have ended do not continue, and others go on without them.
    is_trial: bool = False
    record: bytes = b""  # that of these cells, for a task without the study's folder

    @property
    def key(self) -> str:
        """A name that no other job has at the same time."""
        return " to ".join(dict.fromkeys((self.labels[0], self.labels[-1])))

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of its runs."""
        return tuple(self.study / label for label in self.labels)

    @property
    def runs(self) -> list[Run]:
        """Its runs, of which some may not have begun."""
        return [*map(Run, self.folders)]

    @property
    def is_busy(self) -> bool:
        """Whether a process that an earlier one has started still trains a run."""
        return any(run.folder.is_dir() and not run.is_abandoned() for run in self.runs)

    @property
    def has_ended(self) -> bool:
        """Whether all its runs have ended, so that as trials they do not continue."""
        exist = map(is_run, self.folders)
        return all(exist) and all(
            r.read_info().get("status") in ENDED for r in self.runs
        )

    @property
    def arguments(self) -> list[str]:
        """The arguments of `rlcli` that begin the runs, or continue them."""
        names = [word for label in self.labels for word in ("--cell", label)]
        return ["study", *self.options, "--quiet", *names, "--", str(self.study)]


class JobEnd(NamedTuple):
    """How a job has ended."""

    job: Job
    code: int  # the exit code of its last process
    message: str  # what that has printed to stderr
    is_stopped: bool = False  # by a signal from the queue


@runtime_checkable
class Engine(Protocol):
    """Runs the processes of jobs."""

    @property
    def period(self) -> float:
        """Seconds between two polls of its processes."""
        ...

    @property
    def jobs(self) -> int:
        """The number of processes at once."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether another job may start."""
        ...

    def start(self, job: Job) -> None:
        """Starts a process that begins or continues a job."""
        ...

    def collect(self) -> list[ProcessEnd]:
        """The processes that have ended since the last call."""
        ...

    def send_signal(self, number: int, key: str | None = None) -> None:
        """Sends a signal to the process of a job, or to all."""
        ...

    def close(self) -> None:
        """Releases what the engine holds, after all processes have ended."""
        ...


class JobQueue:
    """Jobs that wait, and those that run.

    `deadline`: no job starts after this time, and each process stops then.
    """

    def __init__(self, engine: Engine, deadline: float | None = None) -> None:
        self._engine = engine
        self._deadline = deadline
        self._waiting: list[Job] = []
        self._running: dict[str, Job] = {}
        self._attempts: dict[str, int] = {}
        self._stopped: set[str] = set()
        self.is_stopping = False

    def wait(self) -> None:
        """Waits until it is time for the next poll of the engine."""
        time.sleep(self._engine.period)

    @property
    def has_room(self) -> bool:
        """Whether a new job would start at once."""
        return self._engine.has_room and not self._waiting and not self.is_stopping

    @property
    def is_empty(self) -> bool:
        """Whether no job runs, and none will."""
        return not self._running and (self.is_stopping or not self._waiting)

    @property
    def running(self) -> list[Job]:
        """The jobs that have a process."""
        return [*self._running.values()]

    def submit(self, job: Job) -> None:
        """Adds a job."""
        self._stopped.discard(job.key)
        self._waiting.append(job)

    def advance(self) -> list[JobEnd]:
        """Starts jobs, and returns those that have ended."""
        ends = []
        for job in [*self._waiting]:
            if self.is_stopping or not self._engine.has_room:
                break
            if job.is_busy:
                continue
            self._waiting.remove(job)
            if (end := self._start(job)) is not None:
                ends.append(end)
        for end in self._engine.collect():
            job = self._running.pop(end.key)
            if (result := self._result(job, end)) is not None:
                ends.append(result)
        return ends

    def _start(self, job: Job) -> JobEnd | None:
        """Starts a job, or returns its end if it needs no process."""
        if job.is_trial and job.has_ended:
            return JobEnd(job, OK, "")
        if job.is_trial and all(map(is_run, job.folders)):
            change_members(job.runs)
        started = job
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                return JobEnd(job, OUT_OF_TIME, "no time was left to start it")
            limit = (*max_time_arguments(left), *job.options)
            started = job._replace(options=limit)
        self._running[job.key] = job
        self._engine.start(started)
        if self.is_stopping:  # by a signal that came before it was running
            self._engine.send_signal(signal.SIGTERM, job.key)
        return None

    def stop(self, key: str) -> None:
        """Stops a running job, whose runs save a checkpoint."""
        if key not in self._stopped:  # a second signal would end it at once
            self._stopped.add(key)
            self._engine.send_signal(signal.SIGTERM, key)

    def signal_all(self, number: int, *, stops: bool) -> None:
        """Sends a signal to all processes; if it stops them, no other job starts."""
        self.is_stopping |= stops
        self._engine.send_signal(number)

    def _result(self, job: Job, end: ProcessEnd) -> JobEnd | None:
        """The outcome of a job; None if it continues in another process."""
        result = JobEnd(job, end.code, end.message)
        if job.has_ended:
            return result
        if job.key in self._stopped or self.is_stopping:
            return result._replace(is_stopped=True)
        if end.code in _ANSWERS:
            return result
        self._attempts[job.key] = self._attempts.get(job.key, 1) + 1
        if self._attempts[job.key] <= ATTEMPTS:
            self.submit(job)
            return None
        message = f"its process ended {ATTEMPTS} times with exit code {end.code}"
        if end.message:
            message += f": {shorten(end.message.splitlines()[-1], 200)}"
        return result._replace(message=message)
