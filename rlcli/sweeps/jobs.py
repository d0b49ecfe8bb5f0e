"""Jobs: the runs of a sweep, each trained by a process until it has ended.

A job that crashes is resumed. A job whose run has already ended starts no process, and
one that another process still trains waits for it.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

from rlcli.errors import USAGE, USER_ERROR
from rlcli.runs.run_folder import Run, is_run
from rlcli.training.processes import ProcessEnd

ATTEMPTS = 3  # processes of a job, if they crash
ENDED = ("finished", "stopped", "failed")  # the statuses of runs that do not continue
SIGNALLED = "signalled"  # the status of a job that was stopped with a signal
STATUS_OF_SIGNALS: Mapping[int, str] = MappingProxyType(  # of what a signal stops
    {
        signal.SIGINT: "interrupted",
        signal.SIGTERM: "terminated",
        signal.SIGHUP: "hung_up",
    }
)


class Job(NamedTuple):
    """A run that has to be trained to its end."""

    key: str
    folder: Path
    arguments: Sequence[str]  # of `rlcli`, to train it from the beginning

    def next_arguments(self) -> list[str]:
        """The arguments of `rlcli` that begin the run, or continue it."""
        if not is_run(self.folder):
            return [*self.arguments]
        trust = ["--trust"] if Run(self.folder).read_info().get("imports") else []
        return ["resume", "--quiet", *trust, "--", str(self.folder)]


class JobEnd(NamedTuple):
    """How a job has ended: its run's status, `crashed`, or `SIGNALLED`."""

    job: Job
    status: str
    message: str


@runtime_checkable
class Engine(Protocol):
    """Where the processes of jobs run."""

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
    """Jobs that wait, and those that run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[Job] = []
        self._running: dict[str, Job] = {}
        self._attempts: dict[str, int] = {}
        self._stopped: set[str] = set()
        self.is_stopping = False

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
        self._waiting.append(job)

    def advance(self) -> list[JobEnd]:
        """Starts jobs, and returns those that have ended."""
        ends = []
        for job in [*self._waiting]:
            if self.is_stopping or not self._engine.has_room:
                break
            run = Run(job.folder)
            if job.folder.is_dir() and not run.is_abandoned():
                continue  # a process that an earlier one has started still trains it
            self._waiting.remove(job)
            if (status := _read_status(run)) in ENDED:
                ends.append(JobEnd(job, status, _reason(run)))
                continue
            self._running[job.key] = job
            self._engine.start(job)
            if self.is_stopping:  # by a signal that came before it was running
                self._engine.send_signal(signal.SIGTERM, job.key)
        for end in self._engine.collect():
            job = self._running.pop(end.key)
            if (result := self._result(job, end)) is not None:
                ends.append(result)
        return ends

    def stop(self, key: str) -> None:
        """Stops a running job, whose run saves a checkpoint."""
        self._stopped.add(key)
        self._engine.send_signal(signal.SIGTERM, key)

    def stop_all(self, number: int) -> None:
        """Stops all jobs with a signal, and starts no other."""
        self.is_stopping = True
        self._engine.send_signal(number)

    def forward(self, number: int) -> None:
        """Sends a signal to all processes that does not stop them."""
        self._engine.send_signal(number)

    def _result(self, job: Job, end: ProcessEnd) -> JobEnd | None:
        """How a job has ended; None if it goes on with another process."""
        run = Run(job.folder)
        status = _read_status(run)
        if status in ENDED:
            return JobEnd(job, status, _reason(run) or end.message)
        if job.key in self._stopped or self.is_stopping:
            return JobEnd(job, SIGNALLED, end.message)
        if end.code in (USER_ERROR, USAGE):
            return JobEnd(job, "failed", end.message.removeprefix("error: "))
        self._attempts[job.key] = self._attempts.get(job.key, 1) + 1
        if self._attempts[job.key] > ATTEMPTS:
            message = f"its process ended {ATTEMPTS} times with exit code {end.code}"
            return JobEnd(job, "crashed", message)
        self.submit(job)
        return None


def _read_status(run: Run) -> str:
    return run.read_info().get("status", "") if is_run(run.folder) else ""


def _reason(run: Run) -> str:
    return run.read_info().get("reason", "")
