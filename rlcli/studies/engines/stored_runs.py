"""Stored runs: copies the runs of a job between a folder and a storage.

A copy may be cut off at any file. What it leaves is a run that can be opened and
continued, because files are copied in the order of `_rank`: everything that a
checkpoint requires, the checkpoints, what names them, and the end of the run. Rows of
`metrics.jsonl` beyond the checkpoint are no harm: a resume removes them.
"""

import contextlib
import itertools
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.runs import population_rounds, study_record
from rlcli.runs.files import exists, open_regular, parse_json, replace_file, to_json
from rlcli.runs.run_folder import SUFFIX, Run
from rlcli.studies.engines.jobs import ENDED, Job
from rlcli.studies.engines.run_storage import RunStorage, in_parallel, is_hidden

_PERIOD = 10.0  # seconds between two copies of a run in training
_WAITS = (1.0, 3.0, 9.0)  # seconds before another attempt
_OWNER = ".owner"  # the file with the token of the task that trains a run
_CHECKPOINTS, _INFO = 3, 5  # their `_rank`
_State = tuple[int, ...] | bytes  # of a file: when it changed, or what it contains


class TakenOverError(Exception):
    """Another task trains the runs, because this one was considered lost."""


def _rank(path: Path) -> int:
    """The place of a file of a run in the order of a copy."""
    run = Run(path.parent)
    ranks = {run.metrics: 1, run.policy: 2, run.best: 2, run.index: 4, run.info: _INFO}
    return ranks.get(path, _CHECKPOINTS if path.match("checkpoints/*") else 0)


def _by_rank(paths: Iterable[Path]) -> list[list[Path]]:
    return [[*group] for _, group in itertools.groupby(sorted(paths, key=_rank), _rank)]


def shared_files(job: Job) -> list[Path]:
    """The paths of files that belong to all runs of a job: those of a population."""
    parents = {folder.parent for folder in job.folders}
    names = population_rounds.FILE_NAME, population_rounds.ROUNDS
    return [parent / name for parent in parents for name in names]


def download_runs(storage: RunStorage, job: Job) -> None:
    """Copies the runs of a job from the storage."""
    _save(storage, storage.read(shared_files(job)))
    found = [path for folder in job.folders for path in storage.find(folder)]
    for group in _by_rank(found):
        in_parallel(storage.download, group)
    if found:
        for run in job.runs:
            for path in {*run.list_checkpoints()}.difference(found):
                path.unlink(missing_ok=True)


def download_evaluations(storage: RunStorage, jobs: Iterable[Job]) -> None:
    """Copies what a driver reads of runs in training, without their checkpoints."""
    runs = [run for job in jobs for run in job.runs]
    _save(storage, storage.read([run.metrics for run in runs]))
    infos = storage.read([run.info for run in runs])
    _save(storage, {path: _without_end(data) for path, data in infos.items()})


def upload_inputs(storage: RunStorage, job: Job) -> None:
    """Copies to the storage what a task needs before it can begin or continue a job."""
    infos = [run.info for run in job.runs]
    contents = _read([*shared_files(job), *infos])
    for path, data in contents.items():
        storage.write(path, data)


@contextlib.contextmanager
def open_job(storage: RunStorage, job: Job) -> Iterator[tuple[Job, Callable[[], None]]]:
    """A job of a storage in a temporary folder, and a function that copies its runs.

    Call the function often. At the end the runs are copied once more.
    """
    with tempfile.TemporaryDirectory(
        prefix="rlcli-", ignore_cleanup_errors=True
    ) as name:
        local = storage._replace(folder=Path(name))
        job = job._replace(study=local.folder)
        replace_file(local.folder / study_record.FILE_NAME, job.record)
        with contextlib.closing(RunUploader(local, job)) as uploader:
            uploader.take_over()
            try:
                yield job, uploader.poll
            except TakenOverError:
                raise
            except BaseException:
                with contextlib.suppress(RlcliError):
                    uploader.finish()
                raise
            uploader.finish()


def _save(storage: RunStorage, contents: Mapping[Path, bytes]) -> None:
    for path, data in contents.items():
        storage.make_parent(path)
        replace_file(path, data)


def _without_end(info: bytes) -> bytes:
    """A `run.json` that marks the run as running, until all of its files are copied."""
    fields = None
    with contextlib.suppress(ValueError, RecursionError):  # its readers say so
        fields = parse_json(info.decode())
    if not isinstance(fields, dict) or fields.get("status") not in ENDED:
        return info
    return (to_json(fields | {"status": "running"}, indent=2) + "\n").encode()


def retry(function: Callable[[], None]) -> None:
    """Calls a function until the store does not fail, but not forever."""
    for seconds in _WAITS:
        with contextlib.suppress(RlcliError):
            return function()
        time.sleep(seconds)
    return function()


class Copying:
    """Makes copies in threads, one at a time, as long as it is polled."""

    def __init__(self) -> None:
        self.last: Future[None] | None = None  # the copy that is made now, if any
        self._begin = time.monotonic()

    def poll(self, threads: Executor, copy: Callable[..., None], *inputs: Any) -> None:
        """Begins a copy if it is time for one; call it often.

        After an error of the store, the next copy is another attempt.
        """
        if self.last is not None and self.last.done():
            with contextlib.suppress(RlcliError):
                self.last.result()
            self.last = None
        if self.last is None and time.monotonic() - self._begin >= _PERIOD:
            self._begin = time.monotonic()
            self.last = threads.submit(copy, *inputs)


class RunUploader:
    """Copies the runs of a job to the storage while a process trains them.

    All copies are made by one thread, so neither the process nor a signal waits for the
    store.
    """

    def __init__(self, storage: RunStorage, job: Job) -> None:
        self._storage = storage
        self._job = job
        self._token = secrets.token_hex(8).encode()
        self._known: dict[Path, _State] = {}  # of the files in the storage
        self._thread = ThreadPoolExecutor(1)
        self._copying = Copying()

    def take_over(self) -> None:
        """Claims the runs for this task, and copies them from the storage."""
        in_parallel(
            lambda folder: self._storage.write(folder / _OWNER, self._token),
            self._job.folders,
        )
        download_runs(self._storage, self._job)
        self._known = self._find_states()

    def poll(self) -> None:
        """Begins a copy if it is time for one; call it often."""
        self._copying.poll(self._thread, self.upload)

    def finish(self) -> None:
        """Copies what has changed since the last copy, after the process has ended.

        Ray may interrupt a task repeatedly.
        """
        last = self._thread.submit(retry, self.upload)
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return last.result()

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown()

    def upload(self) -> None:
        """Copies the files that have changed, in an order that allows a cut-off."""
        while True:
            with contextlib.suppress(_VanishedError):
                return self._upload()

    def _upload(self) -> None:
        found = self._find_states()
        removed = [each for each in self._known if _rank(each) == _CHECKPOINTS]
        removed = [each for each in removed if each not in found]
        changed = {
            path: state
            for path, state in found.items()
            if state != self._known.get(path)
        }
        if not (changed or removed):
            return
        self._check_owner()
        begun = {
            path: _without_end(state)
            for path, state in changed.items()
            if isinstance(state, bytes) and _rank(path) == _INFO
        }
        for group in _by_rank(changed):
            if _rank(group[0]) >= _CHECKPOINTS:  # they belong to a run
                in_parallel(self._send, begun.items())
            in_parallel(self._send, [(path, changed[path]) for path in group])
        self._storage.remove(removed)
        for path in removed:
            del self._known[path]

    def _check_owner(self) -> None:
        owners = self._storage.read(run.folder / _OWNER for run in self._job.runs)
        if any(owner != self._token for owner in owners.values()):
            raise TakenOverError(f"another task trains {self._job.key}")

    def _find_states(self) -> dict[Path, _State]:
        """The states of the files of the runs, and of those that they share."""
        runs = self._job.runs
        texts = [*(run.info for run in runs), *(run.index for run in runs)]
        # Read first: what they describe is complete, and is copied before them.
        found: dict[Path, _State] = {**_read(texts)}
        paths = [path for path in shared_files(self._job) if path.exists()]
        for run in runs:
            for parent, _, names in os.walk(run.folder):
                for path in (Path(parent, name) for name in names):
                    is_part = not is_hidden(path.relative_to(run.folder))
                    if is_part and path not in texts and not path.is_symlink():
                        paths.append(path)
        return found | {path: _stamp(path) for path in paths}

    def _send(self, item: tuple[Path, _State]) -> None:
        path, state = item
        if self._known.get(path) == state:
            return
        try:
            if isinstance(state, bytes):
                self._storage.write(path, state)
            elif path.name.endswith(SUFFIX):
                self._storage.upload(path)
            else:  # may grow meanwhile
                self._storage.write(path, _read_file(path))
        except (OSError, RlcliError) as error:
            if path.exists():
                raise
            raise _VanishedError from error
        self._known[path] = state


class _VanishedError(Exception):
    """A file was removed while it was copied, such as an old checkpoint."""


def _stamp(path: Path) -> tuple[int, ...]:
    """Changes when a file does."""
    try:
        status = path.stat(follow_symlinks=False)
    except FileNotFoundError as error:
        raise _VanishedError from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(paths: Iterable[Path]) -> dict[Path, bytes]:
    """The contents of the files that exist."""
    return {path: _read_file(path) for path in paths if exists(path)}


def _read_file(path: Path) -> bytes:
    """The content of a regular file, which is not that of a link elsewhere."""
    with open_regular(path, os.O_RDONLY, "rb") as file:
        return file.read()
