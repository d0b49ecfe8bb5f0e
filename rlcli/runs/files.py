"""Files of a run: replaced atomically, opened without following links, and JSON.

A run folder may come from anywhere. Below it nothing is written through a symbolic
link, nothing waits on a pipe, and nothing is removed but what rlcli itself has named.
Imports only errors.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

from rlcli.errors import RlcliError

LARGEST_JSON = 64 * 2**20  # bytes: larger files are not read as JSON
_TEMPORARY = re.compile(r"\.(?P<name>.+?)(?:\.\d+){1,2}(?:\.tmp)?")


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file atomically: a reader sees the old content or the new one.

    A symbolic link at `path` is replaced, never followed. `RlcliError` names the file
    if the file system refuses.
    """
    with replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file to write to, which replaces `path` when the block ends.

    It is `.NAME.NUMBER.tmp` in the same folder. It is synced to the disk and renamed;
    if the block raises, it is removed.
    """
    # Two threads may replace the same file.
    number = f"{os.getpid()}.{threading.get_ident()}"
    temporary = path.with_name(f".{path.name}.{number}.tmp")
    with name_file_in_errors(path, "written"):
        try:
            with _open_new(temporary) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def open_regular(path: Path, flags: int, mode: str = "r", **keywords: Any) -> IO[Any]:
    """Opens a regular file; refuses links, pipes, devices and folders.

    Args:
        flags: of `os.open`, such as `os.O_APPEND | os.O_CREAT | os.O_WRONLY`.
        mode: of the file object, which has to fit the flags.
        keywords: those of `open`, such as `encoding`.
    """
    # Without O_NONBLOCK the opening of a pipe would wait for its other end.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    purpose = "read" if flags & os.O_ACCMODE == os.O_RDONLY else "written"
    with name_file_in_errors(path, purpose):
        descriptor = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            return os.fdopen(descriptor, mode, **keywords)
        except BaseException:
            os.close(descriptor)
            raise


@contextlib.contextmanager
def name_file_in_errors(path: Path, purpose: str) -> Iterator[None]:
    """Turns an `OSError` into an `RlcliError` that names the file.

    `purpose` is what cannot be done with it: "read" or "written".
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = _HINTS.get(error.errno or 0, "")
        if error.errno == errno.ELOOP:
            reason = "it is a symbolic link, and rlcli does not follow links in a run"
        raise RlcliError(f"`{path}` cannot be {purpose}: {reason}", hint) from error


_NO_ROOM = "make room on the disk and try again"
_HINTS = {
    errno.ELOOP: "replace the link by the file it points to, or remove it",
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: "check the permissions of the file and its folder",
    errno.EPERM: "check the permissions of the file and its folder",
    errno.EROFS: "`--runs` or `--run` names a folder that can be written to",
    errno.ENOENT: "check that its folder exists",
}


def remove_temporaries(folder: Path, names: Iterable[str]) -> None:
    """Removes the temporary files that a killed process left of files with these names.

    `names` are regular expressions. Everything else in the folder stays.
    """
    pattern = re.compile("|".join(names))
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            match = _TEMPORARY.fullmatch(entry.name)
            if match and pattern.fullmatch(match["name"]) and _is_regular(entry):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON of anything made of mappings, lists, strings and numbers.

    Scalars of NumPy and JAX are numbers, paths are strings; what is not finite is
    null, as JSON knows no NaN.
    """
    return json.dumps(
        _to_plain(value), indent=indent, allow_nan=False, ensure_ascii=False
    )


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _to_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} if there is no file, or an empty one."""
    if not os.path.lexists(path):
        return {}
    with open_regular(path, os.O_RDONLY, "rb") as file:
        data = file.read(LARGEST_JSON + 1)
    hint = "remove it: `rlcli resume` writes it again from the newest checkpoint"
    if len(data) > LARGEST_JSON:
        raise RlcliError(f"`{path}` is damaged: it has over {LARGEST_JSON:,} bytes")
    if not data:
        return {}
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, no text, or nested deeply
        raise RlcliError(f"`{path}` is damaged: {str(error)[:200]}", hint) from error
    if not isinstance(value, dict):
        raise RlcliError(f"`{path}` is damaged: it holds no JSON object", hint)
    return value


def merge_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Sets these fields of the JSON object in a file, and leaves the others."""
    write_json(path, read_json(path) | dict(fields))


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Replaces a file by the JSON object of these fields."""
    replace_file(path, (to_json(fields, indent=2) + "\n").encode())


def _open_new(path: Path) -> BinaryIO:
    """Opens a temporary file that did not exist before."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A killed process with the same number may have left one.
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, flags, 0o666), "w+b")


def _sync_folder(folder: Path) -> None:
    """Makes sure that a new name in the folder is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_regular(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)
