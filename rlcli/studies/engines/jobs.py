"""Jobs: runs of a sweep, trained by a process until they have ended.

A job has one run, or several that are trained together as one program. A job that
crashes is resumed. A job whose runs have already ended starts no process, and one that
another process still trains waits for it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from rlcli.errors import USAGE, USER_ERROR, shorten
from rlcli.runs.run_folder import Run, is_run
from rlcli.runs.trained_together import change_members
from rlcli.studies.engines.process_pool import ProcessEnd, ProcessPool

ATTEMPTS = 3  # processes of a job, if they crash
ENDED = ("finished", "stopped", "failed")  # the statuses of runs that do not continue
SIGNALLED = "signalled"  # the status of a run that was stopped with a signal


class Job(NamedTuple):
    """Runs that have to be trained to their ends, by one process."""

    key: str
    folders: tuple[Path, ...]
    arguments: Sequence[str]  # of `rlcli`, to train them from the beginning
    trust: bool = False  # whether a process that continues them may import their code

    @property
    def runs(self) -> list[Run]:
        """Its runs, of which some may not have begun."""
        return [*map(Run, self.folders)]

    @property
    def is_busy(self) -> bool:
        """Whether a process that an earlier one has started still trains a run."""
        return any(run.folder.is_dir() and not run.is_abandoned() for run in self.runs)

    @property
    def has_begun(self) -> bool:
        """Whether the job can be resumed.

        The folders of several runs are created before the first step of all: a job that
        has only some of them, without checkpoints, begins anew.
        """
        exist = [is_run(folder) for folder in self.folders]
        return all(exist) or any(run.list_checkpoints() for run in self.runs)

    def move(self, old: Path, new: Path) -> Job:
        """The same job below another folder, with the paths among its arguments."""

        def move_path(text: str) -> str:
            path = Path(text)
            is_below = path.is_relative_to(old)
            return str(new / path.relative_to(old)) if is_below else text

        folders = tuple(new / folder.relative_to(old) for folder in self.folders)
        arguments = [*map(move_path, self.arguments)]
        return self._replace(folders=folders, arguments=arguments)

    def next_arguments(self) -> list[str]:
        """The arguments of `rlcli` that begin the runs, or continue them."""
        if not self.has_begun:
            return [*self.arguments]
        return self.runs[0].resume_arguments("--quiet", trust=self.trust)


class RunEnd(NamedTuple):
    """The outcome of a run: its status, `crashed`, or `SIGNALLED`."""

    folder: Path
    status: str
    message: str


class JobEnd(NamedTuple):
    """The outcomes of the runs of a job."""

    job: Job
    runs: Sequence[RunEnd]


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
    """Jobs that wait, and those that run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
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
            if (end := _end_of_all(job)) is not None:
                ends.append(end)
                continue
            if job.has_begun:
                change_members(job.runs)
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
        """Stops a running job, whose runs save a checkpoint."""
        if key not in self._stopped:  # a second signal would end it at once
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
        """The outcome of a job; None if it continues in another process."""
        if (result := _end_of_all(job, end.message)) is not None:
            return result
        if job.key in self._stopped or self.is_stopping:
            return _end_of_others(job, SIGNALLED, end.message)
        if end.code in (USER_ERROR, USAGE):
            message = end.message.removeprefix("error: ")
            return _end_of_others(job, "failed", message)
        self._attempts[job.key] = self._attempts.get(job.key, 1) + 1
        if self._attempts[job.key] > ATTEMPTS:
            message = f"its process ended {ATTEMPTS} times with exit code {end.code}"
            if end.message:
                message += f": {shorten(end.message.splitlines()[-1], 200)}"
            return _end_of_others(job, "crashed", message)
        self.submit(job)
        return None


def _end_of_all(job: Job, message: str = "") -> JobEnd | None:
    """The end of a job whose runs have all ended, otherwise None."""
    end = _end_of_others(job, "", message)
    return end if all(run.status for run in end.runs) else None


def _end_of_others(job: Job, status: str, message: str) -> JobEnd:
    """The end of a job with this status for all runs that have not ended themselves."""
    ends = []
    for folder in job.folders:
        info = Run(folder).read_info() if is_run(folder) else {}
        if info.get("status") in ENDED:
            reason = info.get("reason", "") or message
            ends.append(RunEnd(folder, info["status"], reason))
        else:
            ends.append(RunEnd(folder, status, message))
    return JobEnd(job, ends)


class LocalEngine:
    """Processes of this one, which stop with it."""

    period = 0.05

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._pool = ProcessPool(jobs)

    @property
    def has_room(self) -> bool:
        """Whether another process may start."""
        return self._pool.has_room

    def start(self, job: Job) -> None:
        """Starts a process that begins or continues a job."""
        self._pool.start(job.key, job.next_arguments(), stops_with_parent=True)

    def collect(self) -> list[ProcessEnd]:
        """The processes that have ended since the last call."""
        return self._pool.collect()

    def close(self) -> None:
        """There is nothing to close."""

    def send_signal(self, number: int, key: str | None = None) -> None:
        """Sends a signal to the process of a job, or to all."""
        self._pool.send_signal(number, key)
