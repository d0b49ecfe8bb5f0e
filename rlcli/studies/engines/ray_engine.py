"""Ray engine: the processes of a study on the nodes of a Ray cluster.

A job is a task that runs `rlcli` in a process of its own. Ray decides where and when,
and begins a task again whose worker or node has failed: the task then finds the run's
folder, on a file system that all nodes share or in a storage, and resumes it.
"""

import contextlib
import fcntl
import os
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from rlcli.errors import RlcliError
from rlcli.registry.libraries import import_library
from rlcli.runs.files import open_regular
from rlcli.studies.engines import stored_runs
from rlcli.studies.engines.jobs import Job, ProcessEnd
from rlcli.studies.engines.local_engine import LocalEngine
from rlcli.studies.engines.run_storage import RunStorage

EXTRA = "ray"
RETRIES = 10  # of a task whose worker or node has failed
_POLL = 0.1  # seconds between two polls of a process; Ray interrupts no longer wait
_RESOURCES = 5.0  # seconds between two polls of the size of the cluster
_CANCEL = 10.0  # seconds until a cancelled task that has not ended is cancelled again
_STORAGE_FAILED, _CRASHED, _TERMINATED = 74, 137, 143  # exit codes


class RayEngine:
    """Tasks with declared CPUs and GPUs on a cluster, or on this machine without one.

    `jobs` limits the tasks at once; by default as many as the cluster has room for.
    `address` is that of a cluster: `auto`, `ray://HOST:PORT`, or None for a local one.
    `storage` has the runs if the nodes do not share the study's folder.
    """

    period = 0.05

    def __init__(
        self,
        jobs: int | None = None,
        *,
        address: str | None = None,
        cpus: float = 1.0,
        gpus: float = 0.0,
        storage: RunStorage | None = None,
    ) -> None:
        self._ray: Any = import_library("ray", EXTRA)
        options = {"address": address} if address else {"include_dashboard": False}
        self._ray.init(log_to_driver=False, logging_level="ERROR", **options)
        self._task = self._ray.remote(run_job).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES
        )
        self._jobs = jobs
        self._storage = storage
        self._needs = {"CPU": cpus, "GPU": gpus}
        self._cores = max(1, round(cpus))
        self._room, self._looked_at = 1, -_RESOURCES
        self._running: dict[str, Any] = {}
        self._cancelled: dict[str, float] = {}  # when

    @property
    def has_room(self) -> bool:
        """Whether another task may start."""
        return len(self._running) < self.jobs

    @property
    def jobs(self) -> int:
        """The number of tasks at once."""
        if self._jobs is not None:
            return self._jobs
        if time.monotonic() - self._looked_at >= _RESOURCES:
            self._looked_at = time.monotonic()
            resources = self._ray.cluster_resources()
            counts = [
                resources.get(name, 0) // need
                for name, need in self._needs.items()
                if need
            ]
            self._room = max(1, int(min(counts, default=1)))
        return self._room

    def start(self, job: Job) -> None:
        """Starts a task that begins or continues a job."""
        self._running[job.key] = self._task.remote(job, self._cores, self._storage)

    def collect(self) -> list[ProcessEnd]:
        """The tasks that have ended since the last call."""
        references = [*self._running.values()]
        if not references:
            return []
        ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        ended = [key for key, each in self._running.items() if each in ready]
        for key in ended:
            self._cancelled.pop(key, None)
        # Once, a task that was begun again did not end when it was cancelled.
        for key, since in self._cancelled.items():
            if time.monotonic() - since >= _CANCEL:
                self._cancel(key)
        return [self._result(key, self._running.pop(key)) for key in ended]

    def send_signal(self, number: int, key: str | None = None) -> None:
        """Stops the task of a job, or all; other signals do not reach them."""
        if number == signal.SIGUSR1:
            return
        for each in [key] if key is not None else [*self._running]:
            if each in self._running:
                self._cancel(each)

    def _cancel(self, key: str) -> None:
        self._cancelled[key] = time.monotonic()
        self._ray.cancel(self._running[key])

    def close(self) -> None:
        """Leaves the cluster; ends it if it was made for this study."""
        self._ray.shutdown()

    def _result(self, key: str, reference: Any) -> ProcessEnd:
        errors = self._ray.exceptions
        try:
            code, message = self._ray.get(reference)
        except errors.TaskCancelledError:
            return ProcessEnd(key, _TERMINATED, "")
        except errors.RayError as error:  # more failures than `RETRIES`
            return ProcessEnd(key, _CRASHED, str(error).strip().splitlines()[-1])
        return ProcessEnd(key, code, message)


def run_job(job: Job, cores: int, storage: RunStorage | None = None) -> tuple[int, str]:
    """Runs a job in a process, on a worker; returns its exit code and its stderr.

    When Ray cancels the task, the process stops with a checkpoint.
    """
    if storage is None:
        while job.is_busy:
            time.sleep(_POLL)  # the process of a worker that has failed is stopping
        return _run_process(job, cores)
    try:
        with stored_runs.open_job(storage, job) as (local, copy):
            return _run_process(local, cores, copy)
    except RlcliError as error:
        return _STORAGE_FAILED, error.message


def _run_process(
    job: Job, cores: int, poll: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Runs a job in a process, and calls `poll` until it has ended."""
    with _claim_cores(cores) as claimed:
        engine = LocalEngine(1)
        engine.start(job, on=claimed)
        try:
            while not (ended := engine.collect()):
                poll()
                time.sleep(_POLL)
        except BaseException:
            engine.send_signal(signal.SIGTERM)
            _wait_for_end(engine)
            raise
    return ended[0].code, ended[0].message


def _wait_for_end(engine: LocalEngine) -> None:
    """Waits for a process that writes its checkpoint, also if Ray cancels again."""
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            if engine.collect():
                return
            time.sleep(_POLL)


@contextlib.contextmanager
def _claim_cores(count: int) -> Iterator[list[int]]:
    """Reserves `count` cores of this node for a task; [] if too few are free.

    Ray counts cores but does not assign them. Locks of files are released with the
    process that holds them.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield []
        return
    folder = Path(tempfile.gettempdir()) / f"rlcli-cores-{os.getuid()}"
    claimed: dict[int, IO[bytes]] = {}
    if not _is_own_folder(folder):
        yield []
        return
    with contextlib.ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)):
            if len(claimed) == count:
                break
            flags = os.O_RDWR | os.O_CREAT
            with contextlib.suppress(OSError, RlcliError):
                file = open_regular(folder / str(core), flags, "r+b")
                stack.enter_context(file)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                claimed[core] = file
        yield [*claimed] if len(claimed) == count else []


def _is_own_folder(folder: Path) -> bool:
    """Creates a folder of this user's; whether it is one to which nobody else writes.

    Anyone may have created it before, in a folder that all users share.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_private = stat.S_IMODE(status.st_mode) & 0o022 == 0
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and is_private
