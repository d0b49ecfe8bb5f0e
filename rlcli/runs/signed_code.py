"""Signed code: where the code is that the user's rlcli has signed for a run.

It is the user's own files where they were. If these have changed, it is the copies in
the run, as long as the run is where it was made, or was moved together with the files.
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.registry import user_code
from rlcli.runs import ownership
from rlcli.runs.files import read_bytes

CODE = "code"  # the folder with the copies in that of a run


class SignedCode(NamedTuple):
    """The code of a run, and whether its trackers are signed, too."""

    record: Mapping[str, Any]  # `code` of `run.json`, with the files where they are
    # Those that are not as they were, and new ones that would be imported as well.
    changed: Mapping[str, Path]
    copies: Mapping[str, bytes]  # the code to import if there are any
    trackers: bool


def find_signed_code(
    folder: Path, info: Mapping[str, Any], recipes: Sequence[Mapping[str, Any]]
) -> SignedCode | None:
    """The code of a run with a valid signature; None if it has to be trusted.

    `info` is `run.json`, and `recipes` are the data that will be loaded.
    """
    found = ownership.find_claims(folder, info, recipes)
    if found is None:
        return None
    origin, true = found
    record = info.get("code", {})
    entries = read_code_record(record)
    changed = _find_changed(entries)
    copies: Mapping[str, bytes] = {}
    if changed:
        if "folder" not in true:
            record = entries = _move(entries, Path(origin), folder)
            if not all(_is_unchanged(name, each) for name, each in entries.items()):
                return None
        copies = _read_copies(folder, entries)
        if not copies:
            return None
    return SignedCode(record, changed, copies, {"folder", "trackers"} <= true)


def _find_changed(entries: Mapping[str, Mapping[str, str]]) -> dict[str, Path]:
    """The files that differ from those that were signed, or were added to them.

    An added one may take the place of a module that was found elsewhere, or nowhere.
    """
    sources = find_sources(entries)
    changed = {
        n: sources[n] for n, each in entries.items() if not _is_unchanged(n, each)
    }
    if not changed:
        known = {*map(os.path.realpath, sources.values())}
        modules = [*map(user_code.module_name, entries)]
        roots = find_roots(sources)
        found = user_code.find_files(modules, *roots, is_only=True)
        changed = {n: f for n, f in found.items() if os.path.realpath(f) not in known}
    return changed


def find_sources(entries: Mapping[str, Mapping[str, str]]) -> dict[str, Path]:
    """The files of the user."""
    return {name: Path(entry["source"]) for name, entry in entries.items()}


def find_roots(sources: Mapping[str, Path]) -> list[Path]:
    """The entries of `sys.path` from which the modules were imported."""
    roots = (
        source.parents[len(PurePosixPath(name).parts) - 1]
        for name, source in sources.items()
        if len(source.parents) >= len(PurePosixPath(name).parts)
    )
    return [*dict.fromkeys(roots)]


def _move(
    entries: Mapping[str, Mapping[str, str]], before: Path, now: Path
) -> dict[str, dict[str, str]]:
    """The entries of files that were moved together with the folder of their run."""

    def move(source: str) -> str:
        below = os.path.relpath(source, before)
        return os.path.normpath(os.path.join(os.path.realpath(now), below))

    return {
        name: {**entry, "source": move(entry["source"])}
        for name, entry in entries.items()
    }


def read_code_record(record: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """The well-formed entries of `code` in `run.json`."""
    return {
        name: entry
        for name, entry in record.items()
        if isinstance(entry, Mapping)
        and all(isinstance(entry.get(key), str) for key in ("sha256", "source"))
        and ".." not in PurePosixPath(name).parts
    }


def _is_unchanged(name: str, entry: Mapping[str, str]) -> bool:
    """Whether a file has the recorded content, and only the user can change it."""
    source = Path(entry["source"])
    is_own = ownership.is_own_module(name, source)
    return is_own and hash_file(source) == entry["sha256"]


def _read_copies(
    folder: Path, record: Mapping[str, Mapping[str, str]]
) -> dict[str, bytes]:
    """The copies of a run as they were signed; {} if one has changed."""
    contents: dict[str, bytes] = {}
    for name, entry in record.items():
        content = _read(folder / CODE / name)
        if content is None or _digest(content) != entry["sha256"]:
            return {}
        contents[name] = content
    return contents


def hash_file(file: Path) -> str:
    """The SHA-256 of a regular file, or that a link leads to; "" if it has none."""
    return _digest(_read(Path(os.path.realpath(file))))


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _read(file: Path) -> bytes | None:
    """The content of a regular file; None if it cannot be read, or is too large."""
    with contextlib.suppress(RlcliError):
        return read_bytes(file, "")
    return None
