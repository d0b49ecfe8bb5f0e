"""Creation: creates the folders of runs, each for one process only."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, shell_path
from rlcli.runs import files, locks
from rlcli.runs.files import replace_file, write_json
from rlcli.runs.naming import describe_overrides, name_or_time
from rlcli.runs.run_folder import Run, is_run, timestamp
from rlcli.runs.study_record import find_study

_OTHER_PLACE = "choose another folder with `--runs` or `--run`"
_PATIENCE = 5.0  # seconds to wait for a process that creates the same run
_POLL = 0.01  # seconds between two attempts


def check_place(runs: str | Path = "runs", run: str | Path | None = None) -> None:
    """Refuses a place where `create_run` could not create a run; creates nothing."""
    if run is not None:
        _refuse_existing(Run(Path(run)))
    files.check_writable(Path(runs if run is None else run), _OTHER_PLACE)


def create_run(
    recipe: str,
    *,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    overrides: Sequence[str] = (),
    written: str = "",
    resolved: str = "",
    **fields: Any,
) -> Run:
    """Creates the folder of a run, by default `<runs>/<recipe>/<UTC time>[-n]`.

    Two processes never get the same folder. Call it only after checking the recipe: a
    refused recipe leaves no folder behind.

    Args:
        recipe: the name of the recipe.
        runs: the folder in which runs are created.
        run: the folder of this run, instead of one below `runs`.
        name: the name of this run: `<runs>/<recipe>/<name>[-n]`.
        overrides: options that replace the recipe's, `a.b=value`: the folder's name
            contains them in short, `<UTC time>[-n]_b=value`.
        written: the recipe as the user wrote it.
        resolved: the recipe with every default filled in.
        fields: more fields of `run.json`.
    """
    if recipe in ("", ".", "..") or Path(recipe).name != recipe:
        raise ValueError(f"expected the name of a recipe, not a path, got {recipe!r}")
    try:
        if run is not None:
            created = _existing_or_new(Path(run))
        else:
            parent = Path(runs) / recipe
            parent.mkdir(parents=True, exist_ok=True)
            label = "" if name else describe_overrides(overrides)
            created = _create_numbered_folder(
                parent, name_or_time(name), f"_{label}" if label else ""
            )
    except OSError as error:
        raise RlcliError(
            f"`{error.filename}` cannot be created: {error.strerror}", _OTHER_PLACE
        ) from error
    with _claim(created), discard_on_error([created]):
        created.remove_temporaries()  # of a process that was killed here
        replace_file(created.recipe, written.encode())
        replace_file(created.resolved_recipe, resolved.encode())
        # Last, because `run.json` marks the folder as a complete run.
        first = {"recipe": recipe, "status": "created", "created": timestamp()}
        write_json(created.info, {**first, "name": name, **fields})
    return created


@contextlib.contextmanager
def discard_on_error(runs: Sequence[Run]) -> Iterator[None]:
    """Removes the files of runs that cannot begin, for example on a full disk."""
    try:
        yield
    except RlcliError:
        for run in runs:
            with contextlib.suppress(OSError, RlcliError):
                run.discard()
        raise


def _create_numbered_folder(parent: Path, start: str, label: str) -> Run:
    n = 1
    while True:
        folder = parent / (f"{start}{label}" if n == 1 else f"{start}-{n}{label}")
        try:
            os.mkdir(folder)  # fails if it exists: the process that creates it owns it
        except FileExistsError:
            n += 1
            continue
        return Run(folder, is_new=True, is_below_recipe=True)


def _existing_or_new(folder: Path) -> Run:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return Run(folder)
    return Run(folder, is_new=True)


@contextlib.contextmanager
def _claim(run: Run) -> Iterator[None]:
    """Holds the lock of a folder while a run is created in it.

    Raises an error if the folder already contains a run, or if another process holds
    the lock for `_PATIENCE` seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            with run.lock():
                _refuse_existing(run)
                yield
                return
        except locks.LockedError:
            _refuse_existing(run)
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL)


def _refuse_existing(run: Run) -> None:
    if is_run(run.folder):
        raise RlcliError(
            f"`{run.folder}` already contains a run",
            f"`rlcli resume {shell_path(run.folder)}` continues it",
        )
    if find_study(run.folder):
        raise RlcliError(f"`{run.folder}` already contains a study", _OTHER_PLACE)
