"""Index: the runs and studies below folders, and which of them have changed."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs.listing import find_runs
from rlcli.runs.records import UNFINISHED, Record, read_record
from rlcli.runs.run_folder import Run, is_run
from rlcli.runs.study_record import Study, find_study

_PERIOD = 0.5  # seconds between two looks at the folders
_LOAD = 4  # times as long as a look takes, if that is longer


class Entry(NamedTuple):
    """A run: its record, and the version of the index in which it has changed."""

    id: str
    folder: Path
    record: Record
    version: int
    stamp: tuple[Any, ...]  # of its files


class RunIndex:
    """The runs below folders, read again where their files have changed.

    Links are not followed, except the folders themselves, which the user names.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._roots = list(folders)
        self.folders = [*map(str, folders)]  # as the user has named them
        self.version = 0  # of the last change
        self.entries: Mapping[str, Entry] = {}  # by id
        self.studies: Sequence[Study] = ()
        self._next = 0.0
        self._recorded: tuple[Any, ...] = ()  # what `studies` depend on
        self._folders = {folder for root in self._roots for folder in _find(root)}

    def refresh(self) -> None:
        """Looks at the folders again, if that was not done just now."""
        begin = time.monotonic()
        if begin < self._next:
            return
        self._folders = {folder for root in self._roots for folder in _find(root)}
        # Names for the links of the page, which do not say where the folders are.
        paths = sorted(self._folders)
        digests = (hashlib.sha256(os.fsencode(path)).hexdigest() for path in paths)
        found = {digest[:12]: path for digest, path in zip(digests, paths, strict=True)}
        version = self.version + 1
        entries = {id: self._read(id, folder, version) for id, folder in found.items()}
        has_changed = any(each.version == version for each in entries.values())
        has_changed |= entries.keys() != self.entries.keys()
        self.entries = entries
        has_changed |= self._find_studies()
        self.version = version if has_changed else self.version
        now = time.monotonic()
        self._next = now + max(_PERIOD, _LOAD * (now - begin))

    def find(self, id: str) -> Path:
        """The folder of a run; an error if the index has no such run."""
        if id not in self.entries:
            raise RlcliError("there is no such run any more")
        return self.entries[id].folder

    def _read(self, id: str, folder: Path, version: int) -> Entry:
        known, stamp = self.entries.get(id), stamp_of(folder)
        if known is not None and known.stamp == stamp:
            record = known.record
            is_over = record["status"] in UNFINISHED and Run(folder).is_abandoned()
            if not is_over:
                return known
        record = read_record(folder)
        if known is not None and (known.record, known.stamp) == (record, stamp):
            version = known.version
        return Entry(id, folder, record, version, stamp)

    def _find_studies(self) -> bool:
        """Finds the studies around the runs; whether they have changed."""
        parents = {parent for folder in self._folders for parent in folder.parents}
        inside = (p for p in parents if any(root in p.parents for root in self._roots))
        places = sorted({*self._roots, *inside})
        files = {place: _stamp(place / "study.json") for place in places}
        recorded = tuple(pair for pair in files.items() if pair[1])
        if recorded == self._recorded:
            return False
        self._recorded, studies = recorded, []
        for place, _ in recorded:
            with contextlib.suppress(RlcliError):  # damaged: its runs are listed
                if (study := find_study(place)) is not None:
                    studies.append(study)
        self.studies = studies
        return True


def stamp_of(folder: Path) -> tuple[Any, ...]:
    """Differs whenever the record, the recipe or the metrics of a run have changed."""
    run = Run(folder)
    paths = (run.info, run.metrics, run.index, run.resolved_recipe)
    return tuple(map(_stamp, paths))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _find(root: Path) -> Iterable[Path]:
    if is_run(root):
        return [root]
    return find_runs(root, follows=False)
