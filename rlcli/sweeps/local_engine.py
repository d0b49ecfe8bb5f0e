"""Local engine: the processes of a sweep on this machine, one per core."""

from __future__ import annotations

from rlcli.sweeps.jobs import Job
from rlcli.training.several.process_pool import ProcessEnd, ProcessPool


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
