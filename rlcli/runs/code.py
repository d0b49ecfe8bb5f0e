"""Code: copies of the user code of a run, in its folder `code/`.

A run is evaluated, rendered and resumed with the code that it was trained with.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe
from rlcli.registry import user_code
from rlcli.runs.files import exists, open_regular, replace_file
from rlcli.runs.locate import owning_run
from rlcli.runs.run_folder import Run

_MAX_NAMED = 3  # files in a message


def copy_code(run: Run, recipe: Recipe) -> dict[str, Any]:
    """Copies the user code of a recipe into the run, and returns fields of `run.json`.

    `imports` are the import paths in the recipe, `trackers` its trackers that reach
    beyond the run's folder, `code` the SHA-256 and the origin of each copied file.
    """
    modules = [path.partition(":")[0] for path in recipe.import_paths]
    for kind, name in recipe.part_names:
        factory = registry.find(kind, name).factory
        module = getattr(getattr(factory, "func", factory), "__module__", "")
        modules += [module] if module not in ("", "__main__") else []
    files = user_code.imported_files(modules)
    if files and exists(run.code):
        raise RlcliError(
            f"`{run.code}` exists already",
            "choose another folder with `--runs` or `--run`",
        )
    try:
        record = {name: _copy(file, run.code / name) for name, file in files.items()}
    except BaseException:
        shutil.rmtree(run.code, ignore_errors=True)
        raise
    return {
        "imports": recipe.import_paths,
        "trackers": recipe.remote_trackers,
        "code": record,
    }


def use_code(run: Run) -> str:
    """Makes Python import the code that a run was trained with; returns a warning.

    That is the original code while it is unchanged, so that data files beside it are
    found, and else the copy. The warning is "" if the original is unchanged or gone.
    """
    record = _read_record(run)
    sources = {name: Path(entry["source"]) for name, entry in record.items()}
    present = [name for name, source in sources.items() if source.is_file()]
    changed = [n for n in present if _hash(sources[n]) != record[n]["sha256"]]
    if record and len(present) == len(record) and not changed:
        user_code.search_first(*_roots(sources))
        return ""
    if not run.code.is_dir():
        user_code.search_first(*_roots({name: sources[name] for name in present}))
        return f"{_name_files(changed, sources)} since training" if changed else ""
    user_code.search_first(run.code)
    edited = [n for n in record if _hash(run.code / n) != record[n]["sha256"]]
    if edited:
        copies = {name: run.code / name for name in edited}
        return f"{_name_files(edited, copies)} since training"
    if not changed:
        return ""
    return (
        f"{_name_files(changed, sources)} since training: the run uses its own copy in "
        f"`{run.code}`; remove that folder to use the current code"
    )


def use_code_of(path: Path) -> str:
    """The same for the run of a policy or checkpoint file.

    Modules of a file without a run are found beside it.
    """
    run = owning_run(path)
    if run is not None:
        return use_code(run)
    user_code.search_first(path.absolute().parent)
    return ""


def _copy(file: Path, copy: Path) -> dict[str, str]:
    """Copies a file, and returns its entry in `run.json`."""
    data = file.read_bytes()
    copy.parent.mkdir(parents=True, exist_ok=True)
    replace_file(copy, data)
    return {"sha256": hashlib.sha256(data).hexdigest(), "source": str(file.absolute())}


def _read_record(run: Run) -> dict[str, Mapping[str, str]]:
    """The well-formed entries of `code` in `run.json`."""
    return {
        name: entry
        for name, entry in run.read_info().get("code", {}).items()
        if isinstance(entry, Mapping)
        and all(isinstance(entry.get(key), str) for key in ("sha256", "source"))
        and ".." not in PurePosixPath(name).parts
    }


def _roots(sources: Mapping[str, Path]) -> Iterator[Path]:
    """The entries of `sys.path` from which the modules were imported."""
    roots = (
        source.parents[len(PurePosixPath(name).parts) - 1]
        for name, source in sources.items()
        if len(source.parents) >= len(PurePosixPath(name).parts)
    )
    yield from dict.fromkeys(roots)


def _hash(file: Path) -> str:
    """The SHA-256 of a regular file; "" if it cannot be read."""
    with contextlib.suppress(RlcliError), open_regular(file, os.O_RDONLY, "rb") as data:
        return hashlib.sha256(data.read()).hexdigest()
    return ""


def _name_files(names: Iterable[str], files: Mapping[str, Path]) -> str:
    """The files, as the subject of a message: "`a.py` and 2 more have changed"."""
    first, *others = [f"`{files[name]}`" for name in names]
    listed = ", ".join([first, *others[: _MAX_NAMED - 1]])
    more = len(others) - _MAX_NAMED + 1
    end = f" and {more} more" if more > 0 else ""
    return f"{listed}{end} {'have' if others else 'has'} changed"
