"""Storage engine: an engine whose tasks share no file system with this machine.

The tasks copy their runs to a storage. This engine copies runs from there into the
study's folder: their evaluations while they train, and everything when a task has
ended. So the driver finds the same files as with a shared file system.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.run_folder import trust_option
from rlcli.runs.study_record import format_record
from rlcli.studies.engines import stored_runs
from rlcli.studies.engines.jobs import Engine, Job, ProcessEnd
from rlcli.studies.engines.run_storage import RunStorage

_MAX_THREADS = 4  # that copy the runs of a job each


class StorageEngine:
    """Another engine, whose tasks copy their runs to `storage`."""

    def __init__(self, engine: Engine, storage: RunStorage) -> None:
        self.period = engine.period
        self._engine = engine
        self._storage = storage
        self._running: dict[str, Job] = {}
        self._arriving: dict[str, tuple[ProcessEnd, Future[None]]] = {}
        self._threads = ThreadPoolExecutor(_MAX_THREADS)
        self._copying = stored_runs.Copying()  # of evaluations

    @property
    def jobs(self) -> int:
        """The number of tasks at once."""
        return self._engine.jobs

    @property
    def has_room(self) -> bool:
        """Whether another task may start."""
        return self._engine.has_room

    def start(self, job: Job) -> None:
        """Starts a task that begins or continues a job."""
        stored_runs.retry(lambda: stored_runs.upload_inputs(self._storage, job))
        self._running[job.key] = job
        opened, options = OpenedFolder(job.study), job.options
        if not {*options} & {"--trust", "--no-trust"}:  # elsewhere it is not the user's
            options += (*trust_option(opened.admits_code),)
        cells = opened.read_study().cells
        record = format_record([cell for cell in cells if cell.label in job.labels])
        self._engine.start(job._replace(options=options, record=record))

    def collect(self) -> list[ProcessEnd]:
        """The tasks that have ended, and whose runs have been copied."""
        for end in self._engine.collect():
            job = self._running.pop(end.key)
            copy = self._threads.submit(self._download, job, self._copying.last)
            self._arriving[end.key] = end, copy
        inputs = self._storage, [*self._running.values()]
        self._copying.poll(self._threads, stored_runs.download_evaluations, *inputs)
        arrived = [key for key, (_, copy) in self._arriving.items() if copy.done()]
        ends = []
        for key in arrived:
            end, copy = self._arriving.pop(key)
            copy.result()
            ends.append(end)
        return ends

    def _download(self, job: Job, evaluations: Future[None] | None) -> None:
        if evaluations is not None:
            wait([evaluations])  # it might replace newer files
        stored_runs.retry(lambda: stored_runs.download_runs(self._storage, job))

    def send_signal(self, number: int, key: str | None = None) -> None:
        """Sends a signal to the task of a job, or to all."""
        if key is None or key in self._running:
            self._engine.send_signal(number, key)

    def close(self) -> None:
        """Releases what the engine holds, after all tasks have ended."""
        self._threads.shutdown(cancel_futures=True)
        self._engine.close()
