"""Local engine: `rlcli` in several processes at once, with a core for each.

Imports no JAX: the processes do.
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

from rlcli.registry.paths import directory
from rlcli.registry.user_code import module_command
from rlcli.studies.engines.jobs import Job, ProcessEnd
from rlcli.training.stopping.signals import PARENT
from rlcli.xla.threads import usable_cores


class _Process(NamedTuple):
    popen: subprocess.Popen[bytes]
    stderr: IO[bytes]
    core: int | None


class LocalEngine:
    """Processes of `rlcli` on this machine, each of a job.

    Where the system allows it, each of as many processes as cores has a core of its
    own, and saves a checkpoint and stops when this process is killed. The processes are
    not in the process group of the terminal: signals reach them through `send_signal`
    only.
    """

    period = 0.05

    def __init__(self, jobs: int, environment: Mapping[str, str] | None = None) -> None:
        """`environment` are their variables, by default those of this process."""
        self.jobs = jobs
        self._environment = os.environ if environment is None else environment
        self._free_cores = _cores(jobs)
        self._running: dict[str, _Process] = {}

    @property
    def has_room(self) -> bool:
        """Whether another process may start."""
        return len(self._running) < self.jobs

    def start(self, job: Job, on: Sequence[int] = ()) -> None:
        """Starts the process of a job.

        `on`: cores for the process, instead of one that the engine chooses.
        """
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - `collect` closes it
        core = self._free_cores.pop() if self._free_cores else None
        process = subprocess.Popen(
            [*module_command("rlcli"), *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**self._environment, PARENT: str(os.getpid())},
            cwd=directory() or None,
            process_group=0,  # signals of the terminal come from here only
        )
        cores = on or ([core] if core is not None else [])
        if cores:  # before it counts them
            os.sched_setaffinity(process.pid, cores)
        self._running[job.key] = _Process(process, stderr, core)

    def collect(self) -> list[ProcessEnd]:
        """The processes that have ended since the last call."""
        ended = []
        for key, each in [*self._running.items()]:
            code = each.popen.poll()
            if code is None:
                continue
            del self._running[key]
            if each.core is not None:
                self._free_cores.append(each.core)
            with each.stderr as file:
                file.seek(0)
                message = file.read().decode(errors="replace").strip()
            code = 128 - code if code < 0 else code  # killed by a signal
            ended.append(ProcessEnd(key, code, message))
        return ended

    def send_signal(self, number: int, key: str | None = None) -> None:
        """Sends a signal to the process of a job, or to all."""
        for each in [key] if key is not None else [*self._running]:
            if each in self._running:
                self._running[each].popen.send_signal(number)

    def close(self) -> None:
        """There is nothing to close."""


def _cores(jobs: int) -> list[int]:
    """The cores of the processes; [] where there are not as many as processes."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    return cores[:jobs] if 1 < jobs <= min(len(cores), usable_cores()) else []
