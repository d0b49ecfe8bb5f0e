"""Files: atomic replacement, opening without following links, and JSON.

A run folder may come from an untrusted source: rlcli never writes through symbolic
links in it, never waits for pipes, and removes only files that it has named itself.
Imports only errors.

Errors of the disk are converted where the file is known (`name_file_in_errors`), and
elsewhere at the public functions (`explain_file_errors`). `tests/faults` lets every
call fail once.
"""

import contextlib
import errno
import itertools
import json
import math
import os
import re
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from rlcli.errors import RlcliError, quote

LARGEST_JSON = 64 * 2**20  # bytes; larger files are refused
LONGEST_LINE = 2**20  # bytes of a line of JSON
_MOST_CONTAINERS, _MOST_VALUES = 2**20, 2**22  # of a JSON document
T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TEMPORARY = re.compile(r"\.(?P<name>.+?)(?:\.\d+){1,2}(?:\.tmp)?")


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file atomically: a reader sees the old content or the new content.

    Replaces a symbolic link at `path` instead of following it. Raises an `RlcliError`
    that names the file if writing fails.
    """
    with replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Context with a temporary file, which replaces `path` when the block ends.

    The temporary file is `.NAME.NUMBER.tmp` in the same folder. It is synced to disk
    and renamed, or removed if the block raises.
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

    A file with another name, a hard link, is only read: another folder may have it.

    Args:
        flags: flags of `os.open`, such as `os.O_APPEND | os.O_CREAT | os.O_WRONLY`;
            not `os.O_TRUNC`, which changes a file before it is checked.
        mode: the mode of the file object, which has to match the flags.
        keywords: keywords of `open`, such as `encoding`.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its other end.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    purpose = "read" if flags & os.O_ACCMODE == os.O_RDONLY else "written"
    with name_file_in_errors(path, purpose):
        descriptor = os.open(path, flags, 0o666)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if purpose == "written" and status.st_nlink > 1:
                reason = "it has another name, a hard link, and would change there too"
                raise OSError(errno.EMLINK, reason)
            return os.fdopen(descriptor, mode, **keywords)
        except BaseException:
            os.close(descriptor)
            raise


def refuse_link(path: Path) -> None:
    """Refuses a path that is a symbolic link; others may be missing."""
    with name_file_in_errors(path, "used"):
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "a symbolic link")


def make_folder(folder: Path, *names: str) -> Path:
    """Creates a folder below one that may come from elsewhere; refuses links."""
    for name in names:
        folder /= name
        with name_file_in_errors(folder, "created"):
            folder.mkdir(exist_ok=True)
        refuse_link(folder)
    return folder


def exists(path: Path) -> bool:
    """Whether there is a file, a folder or a link, also a broken one.

    Raises an `RlcliError` if the disk fails, where `os.path.lexists` returns False.
    """
    with name_file_in_errors(path, "read"):
        try:
            path.lstat()
        # ValueError: no file can have such a name, as with "\0" or "\ud800".
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
    return True


@contextlib.contextmanager
def name_file_in_errors(path: Path, purpose: str) -> Iterator[None]:
    """Converts an `OSError` to an `RlcliError` that names the file.

    `purpose` completes "cannot be …": "read", "written", "created" or "removed".
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = _HINTS.get(error.errno or 0, "")
        if error.errno == errno.ELOOP:
            reason = "it is a symbolic link, which rlcli does not follow here"
        raise RlcliError(f"`{path}` cannot be {purpose}: {reason}", hint) from error


@contextlib.contextmanager
def explain_file_errors() -> Iterator[None]:
    """Converts an `OSError` that no other function has explained to an `RlcliError`.

    For example of a disk that fails while the files of a run are listed.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of stdout has gone: no error of a file
        raise
    except OSError as error:
        subject = "a file" if error.filename is None else quote(error.filename, 200)
        message = f"{subject} cannot be used: {error.strerror or error}"
        raise RlcliError(message, _HINTS.get(error.errno or 0, "")) from error


def check_writable(folder: Path, hint: str) -> None:
    """Refuses a folder that cannot be written to, or cannot be created.

    Leaves no trace: the file that it creates has no name, where the system allows that.
    """
    existing = folder.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        purpose = "written to" if existing == folder.absolute() else "created"
        message = f"`{folder}` cannot be {purpose}: {error.strerror or error}"
        raise RlcliError(message, hint) from error


def check_output(path: Path, what: str, suffixes: Sequence[str]) -> None:
    """Refuses a file for `what`, such as "a video", that cannot be written.

    `suffixes` are those of the formats. `write_output` creates missing folders.
    """
    name = path.name.lower()
    if not name.endswith(tuple(suffixes)) or name in suffixes:
        ends = ", ".join(f"`{suffix}`" for suffix in suffixes)
        message = f"{quote(path)} is not the name of {what}"
        raise RlcliError(message, f"its name has to end with {ends}")
    if path.is_dir():
        raise RlcliError(f"{quote(path)} is a folder", _OTHER_FILE)
    check_writable(path.parent, _OTHER_FILE)


def write_output(path: Path, data: bytes) -> None:
    """Replaces a file that a user has named, in a folder that may not exist yet."""
    with name_file_in_errors(path.parent, "created"):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)


_OTHER_FILE = "choose another file with `--output`"
_NO_ROOM = "free space on the disk and try again"
_HINTS = {
    errno.ELOOP: "replace the link with the file it points to, or remove it",
    errno.EMLINK: "copy its folder with `cp -r`, and continue with the copy",
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: "check the permissions of the file and its folder",
    errno.EPERM: "check the permissions of the file and its folder",
    errno.EROFS: "choose a writable folder with `--runs` or `--run`",
    errno.ENOENT: "check that its folder exists",
}


def remove_temporaries(folder: Path, names: Iterable[str]) -> None:
    """Removes temporary files that a killed process has left behind.

    `names` are regular expressions of the names of the final files. All other files
    remain.
    """
    pattern = re.compile("|".join(names))
    with (
        name_file_in_errors(folder, "cleaned of temporary files"),
        contextlib.suppress(FileNotFoundError),
    ):
        for entry in os.scandir(folder):
            match = _TEMPORARY.fullmatch(entry.name)
            is_old = match and pattern.fullmatch(match["name"])
            if is_old and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Encodes mappings, lists, strings, numbers and paths as JSON.

    NumPy and JAX scalars become numbers, paths become strings, and numbers that are not
    finite become null, because JSON has no NaN.
    """
    text = json.dumps(
        _to_plain(value), indent=indent, allow_nan=False, ensure_ascii=False
    )
    # A file that another program wrote may contain `\\ud800`, which UTF-8 has not.
    if text.isascii():
        return text
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


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


def _parse_int(digits: str) -> int | float:
    """An integer; beyond the largest float infinity, as `1e999` is in JSON."""
    return int(digits) if len(digits) <= sys.float_info.max_10_exp else float(digits)


_DECODER = json.JSONDecoder(parse_int=_parse_int)


def parse_json(text: str) -> Any:
    """The value of a JSON document, whose numbers can all be converted to float.

    Raises a `ValueError` for other text, and for one that would fill the memory: three
    bytes can become a list or a mapping of a hundred.
    """
    if len(text) > _MOST_CONTAINERS:  # else there cannot be more
        containers = text.count("[") + text.count("{")
        if containers > _MOST_CONTAINERS or text.count(",") > _MOST_VALUES:
            raise ValueError("it has too many values")
    return _DECODER.decode(text)


def read_text(path: Path, hint: str) -> str:
    """The UTF-8 text of a regular file; follows no link.

    `hint` says how to repair a damaged file.
    """
    if not exists(path):
        raise RlcliError(f"there is no file {quote(path)}", hint)
    data = read_bytes(path, hint)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"`{path}` is damaged: line {line} is not UTF-8 text"
        raise RlcliError(message, hint) from error


def read_lines(
    file: IO[bytes],
    path: Path,
    hint: str,
    *,
    first: int = 1,
    longest: int = LONGEST_LINE,
) -> Iterator[tuple[int, bytes]]:
    """The number and the content of each line of a file that is open at a line.

    Ends before a line without an end, which is still being written. `first` is the
    number of the first line, `hint` says how to repair a damaged file at `path`.
    """
    for number in itertools.count(first):
        line = file.readline(longest)
        if not line.endswith(b"\n"):
            if len(line) < longest:
                return
            message = f"`{path}` is damaged: line {number} has more than "
            raise RlcliError(f"{message}{longest:,} bytes", hint)
        yield number, line


# The errors of a function that parses a record which may come from elsewhere.
DAMAGES = (
    *(ValueError, LookupError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)
REMEDY = "restore the file from a copy of the folder"


def read_records(
    path: Path, parse: Callable[[Any, list[T]], T], fault: str = ""
) -> list[T]:
    """The records in a file with one line of JSON each; [] if there is no file.

    `parse` gets the value of a line, and the records before it. If it raises one of
    `DAMAGES`, the error names the line, and `fault` or what `parse` said. A last line
    without an end is that of a killed process, and no record.
    """
    if not exists(path):
        return []
    records: list[T] = []
    with open_regular(path, os.O_RDONLY, "rb") as file:
        for number, line in read_lines(file, path, REMEDY, longest=LARGEST_JSON):
            try:
                records.append(parse(parse_json(line.decode()), records))
            except DAMAGES as error:
                reason = fault or f": {str(error)[:100]}"
                message = f"`{path}` is damaged: line {number}{reason}"
                raise RlcliError(message, REMEDY) from error
    return records


_RECREATED = "remove it: `rlcli resume` recreates it from the newest checkpoint"


def read_json(path: Path, hint: str = _RECREATED) -> dict[str, Any]:
    """Reads the JSON object in a file; {} if the file is missing or empty.

    `hint` says how to repair a damaged file.
    """
    if not exists(path):
        return {}
    data = read_bytes(path, hint)
    if not data:
        return {}
    try:
        value = parse_json(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or too deep
        raise RlcliError(f"`{path}` is damaged: {str(error)[:200]}", hint) from error
    if not isinstance(value, dict):
        raise RlcliError(f"`{path}` is damaged: it is not a JSON object", hint)
    return value


def check_fields(
    path: Path,
    found: Mapping[str, Any],
    fields: Mapping[str, Callable[[Any], bool]],
    hint: str,
    *,
    may_lack: bool = True,
) -> None:
    """Refuses fields of the JSON object in a file whose predicates are false.

    `may_lack`: whether fields may be missing.
    """
    for name, is_sound in fields.items():
        is_there = name in found
        if not (is_sound(found[name]) if is_there else may_lack):
            value = quote(to_json(found.get(name)))
            raise RlcliError(f"`{path}` is damaged: `{name}` is {value}", hint)


def read_bytes(path: Path, hint: str, *, most: int = LARGEST_JSON) -> bytes:
    """The content of a regular file of at most `most` bytes; follows no link."""
    with (
        name_file_in_errors(path, "read"),
        open_regular(path, os.O_RDONLY, "rb") as file,
    ):
        size = os.fstat(file.fileno()).st_size
        if size > most:
            message = f"`{path}` is damaged: it has more than {most:,} bytes"
            raise RlcliError(message, hint)
        return file.read(size)


def merge_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Sets fields of the JSON object in a file, and keeps the others."""
    write_json(path, read_json(path) | dict(fields))


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Replaces a file with a JSON object of these fields."""
    replace_file(path, (to_json(fields, indent=2) + "\n").encode())


def _open_new(path: Path) -> BinaryIO:
    """Opens a temporary file that did not exist before."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A killed process with the same process number may have left one behind.
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, flags, 0o666), "w+b")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems, such as SMB, sync files but no folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)
