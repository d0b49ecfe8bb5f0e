"""Code: copies of the user code of a run, in its folder `code/`.

A run is evaluated, rendered and resumed with the code that it was trained with.
`admit_code` decides whether it may be imported at all.
"""

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe, documents
from rlcli.registry import user_code
from rlcli.runs import ownership, user_files
from rlcli.runs.files import exists, open_regular, replace_file
from rlcli.runs.locate import owning_run
from rlcli.runs.run_folder import Run

_MAX_NAMED = 3  # files in a message


class Admission(NamedTuple):
    """What the recipe of a run or a file may do."""

    code: bool  # whether it may import code from outside rlcli
    trackers: bool  # whether its trackers may contact a host
    warning: str = ""  # about changed code
    # The record of the code of a run that the user's rlcli has signed.
    signed: Mapping[str, Any] | None = None


def admit_code(
    path: Path, recipes: Sequence[Mapping[str, Any]], trust: bool | None
) -> Admission:
    """Decides what recipes of a run may do, and where Python finds their code.

    `path` is the folder or a file of the run, `recipes` are the data that will be
    loaded. With `trust` None only runs that are the user's own, or in a folder that
    the user trusts, may import code.
    """
    if trust is None and (admission := _admit_own(path, recipes)):
        return admission
    run = Run(path) if path.is_dir() else owning_run(path)
    places = [path] if run is None else [path, *filter(Path.exists, [run.code])]
    if trust or (trust is None and all(map(ownership.is_remembered, places))):
        return Admission(True, True, _use_code_of(run, path))
    return Admission(False, False)


def _admit_own(path: Path, recipes: Sequence[Mapping[str, Any]]) -> Admission | None:
    """What a run may do that the user's rlcli has signed; None for others.

    Its code has to be that which was signed: the user's own files, where they were, or
    in the folder where the run was made the copies.
    """
    run = Run(path) if path.is_dir() else owning_run(path)
    if run is None:
        return None
    info = run.read_info()
    claims = ownership.find_claims(run.folder, info, recipes)
    if claims is None:
        return None
    record = _well_formed(info.get("code", {}))
    sources = {name: Path(entry["source"]) for name, entry in record.items()}
    changed = [n for n in record if not _is_unchanged(n, record[n])]
    warning = ""
    if not changed:
        user_code.search_only(*_roots(sources))
    elif claims.is_here and (folder := _copy_unchanged(run, record)):
        user_code.search_only(folder)
        present = [name for name in changed if sources[name].is_file()]
        warning = _describe_changes(run, present, sources)
    else:
        return None
    trackers = claims.is_here and claims.has_trackers
    return Admission(True, trackers, warning, info.get("code", {}))


def _is_unchanged(name: str, entry: Mapping[str, str]) -> bool:
    """Whether a file has the recorded content, and only the user can change it.

    The same for the folders in which Python finds it, where others could add modules
    or bytecode.
    """
    source = Path(entry["source"])
    folders = source.parents[: len(PurePosixPath(name).parts)]
    places = [source, *folders, *filter(Path.exists, [source.parent / "__pycache__"])]
    return all(map(user_files.is_own, places)) and _hash(source) == entry["sha256"]


def _copy_unchanged(run: Run, record: Mapping[str, Mapping[str, str]]) -> Path | None:
    """A folder of this process with the copies of a run; None if one has changed.

    Python imports the bytes that were checked, and neither bytecode nor other modules
    that lie beside them in the run.
    """
    contents: dict[str, bytes] = {}
    for name, entry in record.items():
        content = _read(run.code / name)
        if content is None or _digest(content) != entry["sha256"]:
            return None
        contents[name] = content
    folder = Path(tempfile.mkdtemp(prefix="rlcli-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def sign_run(run: Run, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, str]:
    """The signature of a run, a field of `run.json`; {} if it runs no code of others.

    `record` is the record of its code. Raises an `RlcliError` if the user's key cannot
    be used.
    """
    if not (recipe.import_paths or recipe.remote_trackers):
        return {}
    data = documents.load_document(recipe.resolved_text, source="").data
    return {"signature": ownership.sign(run.folder, data, record)}


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
    record = _well_formed(run.read_info().get("code", {}))
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
    return _describe_changes(run, changed, sources)


def _describe_changes(
    run: Run, changed: Sequence[str], sources: Mapping[str, Path]
) -> str:
    """The warning that a run uses its copies of changed files; "" if there are none."""
    if not changed:
        return ""
    return (
        f"{_name_files(changed, sources)} since training: the run uses its own copy in "
        f"`{run.code}`; remove that folder to use the current code"
    )


def _use_code_of(run: Run | None, path: Path) -> str:
    """The same for the run of a file; modules of one without a run are beside it."""
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


def _well_formed(record: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """The well-formed entries of `code` in `run.json`."""
    return {
        name: entry
        for name, entry in record.items()
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
    return _digest(_read(file))


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _read(file: Path) -> bytes | None:
    """The content of a regular file; None if it cannot be read."""
    with contextlib.suppress(RlcliError), open_regular(file, os.O_RDONLY, "rb") as data:
        return data.read()
    return None


def _name_files(names: Iterable[str], files: Mapping[str, Path]) -> str:
    """The files, as the subject of a message: "`a.py` and 2 more have changed"."""
    first, *others = [f"`{files[name]}`" for name in names]
    listed = ", ".join([first, *others[: _MAX_NAMED - 1]])
    more = len(others) - _MAX_NAMED + 1
    end = f" and {more} more" if more > 0 else ""
    return f"{listed}{end} {'have' if others else 'has'} changed"
