"""Code: copies of the user code of a run, in its folder `code/`.

A run is evaluated, rendered and resumed with the code that it was trained with.
`admit_code` decides whether it may be imported at all.
"""

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.recipe import Recipe, documents
from rlcli.registry import user_code
from rlcli.runs import ownership, signed_code
from rlcli.runs.files import exists, replace_file
from rlcli.runs.locate import owning_run
from rlcli.runs.run_folder import Run
from rlcli.runs.signed_code import (
    find_roots,
    find_sources,
    hash_file,
    read_code_record,
)

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
    run = Run(path) if path.is_dir() else owning_run(path)
    if trust is None and run and (admission := _admit_own(run, recipes)):
        return admission
    places = [path] if run is None else [path, *filter(Path.exists, [run.code])]
    if not ownership.is_trusted(trust, *places):
        return Admission(False, False)
    if run is not None:
        return Admission(True, True, use_code(run))
    user_code.search_first(path.absolute().parent)  # modules are beside the file
    return Admission(True, True)


def _admit_own(run: Run, recipes: Sequence[Mapping[str, Any]]) -> Admission | None:
    """What a run may do that the user's rlcli has signed; None for others."""
    info = run.read_info()
    found = signed_code.find_signed_code(run.folder, info, recipes)
    if found is None:
        return None
    warning = ""
    if found.copies:
        user_code.search_only(_write_copies(found.copies))
        present = [name for name, file in found.changed.items() if file.is_file()]
        warning = _describe_changes(run, present, found.changed)
    else:
        sources = find_sources(read_code_record(found.record))
        user_code.search_only(*find_roots(sources))
    return Admission(True, found.trackers, warning, found.record)


def _write_copies(contents: Mapping[str, bytes]) -> Path:
    """A folder of this process with copies of a run.

    Python imports the bytes that were checked, and neither bytecode nor other modules
    that lie beside them in the run.
    """
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


def copy_code(run: Run, recipe: Recipe, *, is_resume: bool = False) -> dict[str, Any]:
    """Copies the user code of a recipe into the run, and returns fields of `run.json`.

    `imports` are the import paths in the recipe, `trackers` its trackers that reach
    beyond the run's folder, `code` the SHA-256 and the origin of each copied file.
    `is_resume`: replaces what a process has copied that was killed meanwhile.
    """
    modules = [path.partition(":")[0] for path in recipe.import_paths]
    for kind, name in recipe.part_names:
        factory = registry.find(kind, name).factory
        module = getattr(getattr(factory, "func", factory), "__module__", "")
        modules += [module] if module not in ("", "__main__") else []
    files = user_code.imported_files(modules)
    if is_resume:
        shutil.rmtree(run.code, ignore_errors=True)  # follows no link
    if files and exists(run.code):
        message = f"`{run.code}` exists already"
        raise RlcliError(message, "choose another folder with `--runs` or `--run`")
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
    record = read_code_record(run.read_info().get("code", {}))
    sources = find_sources(record)
    present = [name for name, source in sources.items() if source.is_file()]
    changed = [n for n in present if hash_file(sources[n]) != record[n]["sha256"]]
    if record and len(present) == len(record) and not changed:
        user_code.search_first(*find_roots(sources))
        return ""
    if not run.code.is_dir():
        user_code.search_first(*find_roots({name: sources[name] for name in present}))
        return f"{_name_files(changed, sources)} since training" if changed else ""
    user_code.search_first(run.code)
    edited = [n for n in record if hash_file(run.code / n) != record[n]["sha256"]]
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


def _copy(file: Path, copy: Path) -> dict[str, str]:
    """Copies a file, and returns its entry in `run.json`."""
    data = file.read_bytes()
    copy.parent.mkdir(parents=True, exist_ok=True)
    replace_file(copy, data)
    return {"sha256": hashlib.sha256(data).hexdigest(), "source": str(file.absolute())}


def _name_files(names: Iterable[str], files: Mapping[str, Path]) -> str:
    """The files, as the subject of a message: "`a.py` and 2 more have changed"."""
    first, *others = [f"`{files[name]}`" for name in names]
    listed = ", ".join([first, *others[: _MAX_NAMED - 1]])
    more = len(others) - _MAX_NAMED + 1
    end = f" and {more} more" if more > 0 else ""
    return f"{listed}{end} {'have' if others else 'has'} changed"
