"""Variants: the runs of a recipe that differ in varied options, in one folder.

`variants.json` in that folder lists the runs and the values of their options.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs.files import read_json, refuse_link, write_json
from rlcli.runs.records import UNFINISHED, Record, find_status, read_record
from rlcli.runs.run_folder import Run, is_run

FILE_NAME = "variants.json"
_REMEDY = "remove it: the runs beside it can be used one by one"
_LONGEST = 255  # bytes of a name in the file systems of Linux and macOS


class Variants(NamedTuple):
    """The variants in a folder, in the order in which they are trained."""

    folder: Path
    values: Mapping[str, tuple[str, ...]]  # `KEY=VALUE` by the name of a run's folder

    @property
    def runs(self) -> list[Path]:
        """The folders of the runs that exist; refuses links to others."""
        paths = [*map(self.folder.joinpath, self.values)]
        for path in paths:
            refuse_link(path)
        return [path for path in paths if is_run(path)]

    def options(self, name: str) -> dict[str, str]:
        """The values of the varied options of a run, by their names."""
        pairs = (text.partition("=") for text in self.values[name])
        return {key: value for key, _, value in pairs}

    def choose_best(self) -> Path:
        """The folder of the run with the highest IQM of its returns over seeds.

        Runs that have a policy and have not failed come first, and returns of
        evaluations before those of training.
        """
        if not self.runs:
            raise RlcliError(
                f"no run of `{self.folder}` exists", "`rlcli train` trains new ones"
            )
        return max(self.runs, key=lambda path: _rank(path, read_record(path)))


def _rank(path: Path, record: Record) -> tuple[bool, bool, bool, float]:
    result = record["return"] or {"source": None, "iqm": float("nan")}
    score = result["iqm"]
    return (
        Run(path).policy.is_file(),
        record["status"] != "failed",
        result["source"] == "evaluation",
        score if score == score else float("-inf"),  # NaN
    )


def record_variants(folder: Path, values: Mapping[str, Sequence[str]]) -> None:
    """Adds variants to those of a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with _hold_list(folder):
        _write(folder, {**_values(folder), **values})


def discard_variants(folder: Path, names: Sequence[str], *, with_parent: bool) -> None:
    """Removes those of the named variants that have no run, and an empty folder."""
    with _hold_list(folder):
        gone = {name for name in names if not is_run(folder / name)}
        kept = {
            name: each for name, each in _values(folder).items() if name not in gone
        }
        if kept:
            _write(folder, kept)
        else:
            (folder / FILE_NAME).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()
        if with_parent:
            folder.parent.rmdir()


def find_variants(path: str | Path) -> Variants | None:
    """The variants in a folder; None if it is no folder of variants."""
    values = _values(Path(path))
    return Variants(Path(path), values) if values and not is_run(Path(path)) else None


def find_training(path: str | Path) -> Path | None:
    """The first variant in a folder that a process is training; None without any."""
    variants = find_variants(path)
    runs = [] if variants is None else variants.runs
    return next((run for run in runs if find_status(Run(run)) in UNFINISHED), None)


def _values(folder: Path) -> dict[str, tuple[str, ...]]:
    file = folder / FILE_NAME
    fields = read_json(file, _REMEDY)
    if not fields:
        return {}
    values = fields.get("variants")
    if not isinstance(values, dict) or not values:
        raise RlcliError(f"`{file}` is damaged: it lists no variants", _REMEDY)
    for name, settings in values.items():
        is_name = Path(name).name == name not in ("", "..") and name.isprintable()
        if not is_name or len(name.encode()) > _LONGEST:
            raise RlcliError(f"`{file}` is damaged: a name of a folder", _REMEDY)
        if not isinstance(settings, list) or not all(
            isinstance(each, str) for each in settings
        ):
            raise RlcliError(f"`{file}` is damaged: the values of a run", _REMEDY)
    return {name: tuple(settings) for name, settings in values.items()}


def _write(folder: Path, values: Mapping[str, Sequence[str]]) -> None:
    write_json(folder / FILE_NAME, {"variants": values})


@contextlib.contextmanager
def _hold_list(folder: Path) -> Iterator[None]:
    """Context in which no other process changes the list of a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
