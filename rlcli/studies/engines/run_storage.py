"""Run storage: the runs of a study in an object store, or at any URL of fsspec.

It is for nodes without a common file system. An object has the name that its file has
in the study's folder, so a run in the store is an ordinary run folder.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote, suggest
from rlcli.registry.libraries import import_library, install_command, require_extra
from rlcli.runs.files import make_folder, name_file_in_errors

EXTRA, OPTION = "storage", "`--run-storage`"
_MAX_THREADS = 8  # that wait for the store
_LONGEST = 200  # characters of a URL or a reason in a message


class RunStorage(NamedTuple):
    """A place in a store, and the local folder whose files have copies there."""

    url: str
    folder: Path

    def check(self, *, is_new: bool) -> None:
        """Refuses a store that cannot be written, or has files if it should be new."""
        probe = self.folder / f".rlcli-{secrets.token_hex(4)}"
        self.write(probe, b"rlcli")
        self.remove([probe])
        if is_new and self.find(self.folder):
            raise RlcliError(
                f"{quote(self.url, _LONGEST)} contains the runs of another study",
                f"choose another `--name`, or another {OPTION}",
            )

    def find(self, folder: Path) -> list[Path]:
        """The local paths of all files of a folder in the store; [] if it has none.

        Skips hidden files, which are no part of a run.
        """
        with self._access(folder, "read") as (files, root):
            files.invalidate_cache()
            names = [each for each in files.find(root) if each.startswith(f"{root}/")]
        rest = [name.removeprefix(f"{root}/").lstrip("/") for name in names]
        paths = map(Path, rest)  # none leads out of the folder: `..` is hidden
        return [folder / path for path in paths if not is_hidden(path)]

    def read(self, paths: Iterable[Path]) -> dict[Path, bytes]:
        """The contents of files in the store; skips those that do not exist."""
        contents = {}

        def read_file(path: Path) -> None:
            access = self._access(path, "read")
            with access as (files, name), contextlib.suppress(FileNotFoundError):
                contents[path] = files.cat_file(name)

        in_parallel(read_file, paths)
        return contents

    def write(self, path: Path, data: bytes) -> None:
        """Replaces the content of a file in the store."""
        with self._open_to_write(path) as (files, name):
            files.pipe_file(name, data)

    def upload(self, path: Path) -> None:
        """Copies a file to the store, without reading it as a whole."""
        with self._open_to_write(path) as (files, name):
            files.put_file(str(path), name)

    @contextlib.contextmanager
    def _open_to_write(self, path: Path) -> Iterator[tuple[Any, str]]:
        """Context with a file system, and the name to write a file to."""
        with self._access(path, "written") as (files, name):
            if not files.async_impl:  # no object store: it has folders
                files.makedirs(name.rpartition("/")[0], exist_ok=True)
            # Only in an object store a file appears when it is complete.
            is_local = getattr(files, "local_file", False)
            part = _hidden_name(name) if is_local else name
            yield files, part
            if part != name:
                files.mv(part, name)

    def download(self, path: Path) -> None:
        """Replaces a local file with its copy in the store."""
        part = Path(_hidden_name(str(path)))
        self.make_parent(path)
        with name_file_in_errors(part, "removed"):
            part.unlink(missing_ok=True)  # it may be a link
        with self._access(path, "read") as (files, name):
            files.get_file(name, str(part))
        with name_file_in_errors(path, "written"):
            os.replace(part, path)

    def make_parent(self, path: Path) -> None:
        """Creates the local folder of a file; refuses links on the way."""
        with name_file_in_errors(self.folder, "created"):
            self.folder.mkdir(parents=True, exist_ok=True)
        make_folder(self.folder, *path.parent.relative_to(self.folder).parts)

    def remove(self, paths: Iterable[Path]) -> None:
        """Removes files from the store, if they exist."""
        for path in paths:
            access = self._access(path, "removed")
            with access as (files, name), contextlib.suppress(FileNotFoundError):
                files.rm_file(name)

    @contextlib.contextmanager
    def _access(self, path: Path, purpose: str) -> Iterator[tuple[Any, str]]:
        """Context with the file system of the store, and the name of a file in it.

        Converts the errors of a store, which are of many types, to an `RlcliError`.
        """
        url = "/".join((self.url, *path.relative_to(self.folder).parts))
        try:
            yield _open(url)
        except RlcliError:
            raise
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            message = f"{quote(url, _LONGEST)} cannot be {purpose}: "
            raise RlcliError(
                message + quote(reason, _LONGEST),
                "check the URL, the credentials and the network; every node needs them",
            ) from error


def open_storage(url: str, name: str, folder: Path) -> RunStorage:
    """The storage of the study of this name; refuses a URL that cannot be used."""
    require_extra(EXTRA, OPTION)
    url = url.rstrip("/")
    if url.startswith("memory:"):
        raise RlcliError(
            f"{OPTION} {quote(url, _LONGEST)} is the memory of a single process",
            "for example `s3://bucket/runs`",
        )
    _open(url)
    return RunStorage(f"{url}/{name}", folder)


def in_parallel(function: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Calls a function with each item, in threads because each waits for the store."""
    with ThreadPoolExecutor(_MAX_THREADS) as threads:
        for _ in threads.map(function, items):
            pass


def is_hidden(path: Path) -> bool:
    """Whether a file, or a folder on its path, is hidden: locks, unfinished files."""
    return any(part.startswith(".") for part in path.parts)


def _open(url: str) -> tuple[Any, str]:
    """The file system of fsspec for a URL, and the path within it."""
    fsspec: Any = import_library("fsspec", EXTRA)
    protocol, _ = fsspec.core.split_protocol(url)
    if protocol is None:
        raise RlcliError(
            f"{OPTION} {quote(url, _LONGEST)} is not a URL",
            "for example `s3://bucket/runs`; a folder that all nodes share needs only "
            "`--runs`",
        )
    known = fsspec.available_protocols()
    if protocol not in known:
        message = f"fsspec has no storage {quote(protocol + '://')}"
        raise RlcliError(message, suggest(protocol, known))
    try:
        return fsspec.url_to_fs(url)
    except ImportError as error:
        known = import_library("fsspec.registry", EXTRA).known_implementations
        entry = known.get(protocol, {})
        package = entry.get("class", "fsspec").partition(".")[0]
        raise RlcliError(
            f"{quote(protocol + '://')} requires a package that is not installed",
            str(error) if package == "fsspec" else install_command(package),
        ) from error
    except ValueError as error:
        message = f"{OPTION} {quote(url, _LONGEST)} cannot be used: {error}"
        raise RlcliError(message) from error


def _hidden_name(name: str) -> str:
    """The name of a file until it is complete."""
    folder, _, last = name.rpartition("/")
    return f"{folder}/.{last}.part"
