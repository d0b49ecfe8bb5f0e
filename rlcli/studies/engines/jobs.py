"""Jobs: cells of a study, trained by a process until they have ended.

A job has one cell, or several that are trained together as one program. Its process is
`rlcli study FOLDER --cell NAME`, which begins or continues them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from rlcli.runs.records import COMPLETE
from rlcli.runs.run_folder import Run

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
        return all(run.read_info().get("status") in ENDED for run in self.runs)

    @property
    def arguments(self) -> list[str]:
        """The arguments of `rlcli` that begin the runs, or continue them."""
        names = [word for label in self.labels for word in ("--cell", label)]
        return ["study", *self.options, "--quiet", *names, "--", str(self.study)]


class ProcessEnd(NamedTuple):
    """The outcome of a process."""

    key: str  # of its job
    code: int  # the exit code of `rlcli`; 128 + n after signal n
    message: str  # what it has printed to stderr


@runtime_checkable
class Engine(Protocol):
    """Runs the processes of jobs."""

    period: float  # seconds between two polls of its processes

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
