"""Series: metrics of runs that are still written, read where they continue.

Metrics of many runs are too long to read all of them while someone waits: of those that
exceed a limit, rows at equal distances in their files are read.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.results.curves import RunSeries, SeriesCollector
from rlcli.runs import metrics
from rlcli.runs.files import open_regular

COMPLETE = 32 * 2**20  # bytes of several runs that are read completely
SAMPLE = 24 * 2**20  # bytes to read of longer ones, together
_LEAST, _MOST = 2**13, 2**20  # bytes to read of one of them
_BLOCK = 2**10  # bytes at one place, or more for long rows
_TAIL = 2**12  # bytes at the end: the last rows are the result
_KEPT = 2_000  # runs


class SeriesCache:
    """Reads metrics as `read_series` does, but only what is new since the last time.

    `notes` say what could not be read.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._readers: dict[Path, _Reader] = {}
        self._sizes: Mapping[Path, int] = {}

    def begin(self, folders: Sequence[Path]) -> None:
        """Begins to read these runs, completely or a sample of their rows."""
        sizes = {folder: _size_of(folder) for folder in folders}
        total = sum(sizes.values())
        self.notes, self._sizes = [], {}
        if total > COMPLETE:
            each = min(max(SAMPLE // len(sizes), _LEAST), _MOST)
            self._sizes = {f: each for f, size in sizes.items() if size > each}
            share = sum(min(size, each) for size in sizes.values()) / total
            self.notes.append(
                f"the {len(sizes):,} runs have {total / 2**20:,.0f} MiB of metrics: "
                f"curves show a sample of {100 * share:.2g} % of the rows; select "
                "fewer runs to see all"
            )

    def read(self, folder: Path, wanted: Sequence[str]) -> RunSeries:
        """The metrics of a run; none if its file cannot be read."""
        sample = self._sizes.get(folder)
        reader = self._readers.get(folder)
        if reader is None or reader.sample != sample or not reader.has(wanted):
            names = dict.fromkeys((*(reader.wanted if reader else ()), *wanted))
            reader = _Reader(folder, [*names], sample)
        try:
            found = reader.read()
        except RlcliError as error:
            self.notes.append(error.message)
            return SeriesCollector(wanted).result()
        if found is None:  # rows that were read are gone: the run was resumed
            reader = _Reader(folder, reader.wanted, sample)
            found = reader.read() or SeriesCollector(wanted).result()
        self._readers.pop(folder, None)
        self._readers[folder] = reader  # the latest are last
        while len(self._readers) > _KEPT:
            del self._readers[next(iter(self._readers))]
        return found


class _Reader:
    """Reads the metrics of a run, or at most `sample` bytes of them."""

    def __init__(self, folder: Path, wanted: Sequence[str], sample: int | None) -> None:
        self.wanted, self.sample = wanted, sample
        self._path = folder / metrics.FILE_NAME
        self._lines = metrics.LineReader(self._path)
        self._collector = SeriesCollector(wanted)
        self._result = self._collector.result()
        self._state: tuple[int, ...] = ()  # of the file of which there is a sample

    def has(self, wanted: Sequence[str]) -> bool:
        return {*wanted} <= {*self.wanted}

    def read(self) -> RunSeries | None:
        """The metrics so far; None if the file does not continue what was read."""
        if self.sample is not None:
            self._read_sample(self.sample)
            return self._result
        lines = self._lines.read()
        if lines:
            self._collector.add(line[:-1] for line in lines)
            self._result = self._collector.result()
        return None if lines is None else self._result

    def _read_sample(self, most: int) -> None:
        with open_regular(self._path, os.O_RDONLY, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            if state != self._state:
                collector = SeriesCollector(self.wanted)
                collector.add(_sample_lines(file.fileno(), status.st_size, most))
                self._state, self._result = state, collector.result()


def _sample_lines(descriptor: int, size: int, most: int) -> list[bytes]:
    """Complete lines of a file, of blocks at equal distances and of its end."""
    end = max(0, size - _TAIL)
    last = os.pread(descriptor, _TAIL, end).split(b"\n")[1:-1]
    longest = max(map(len, last), default=_BLOCK)
    length = max(_BLOCK, 3 * longest)
    number = max(2, (most - _TAIL) // length)
    lines = []
    for index in range(number):
        place = index * end // number
        block = os.pread(descriptor, length, place).split(b"\n")
        lines += block[0 if place == 0 else 1 : -1]
    return lines + last


def _size_of(folder: Path) -> int:
    try:
        return os.lstat(folder / metrics.FILE_NAME).st_size
    except OSError:
        return 0
