"""User files: files of rlcli in the user's folders, which nobody else can change."""

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path, PurePosixPath

import platformdirs

from rlcli.errors import RlcliError
from rlcli.runs.files import exists, name_file_in_errors, open_regular, replacing

_LARGEST = 2**20  # bytes


def key_file() -> Path:
    """The file of the key with which rlcli signs the user's runs."""
    return platformdirs.user_data_path("rlcli") / "key"


def trusted_file() -> Path:
    """The file of the folders that the user trusts."""
    return platformdirs.user_config_path("rlcli") / "trusted.json"


def read_private(path: Path) -> bytes:
    """The content of a file that only its user can read and write; b"" if missing.

    Raises an `RlcliError` for a link, or a file that others own, read or write.
    """
    if not exists(path):
        return b""
    with open_regular(path, os.O_RDONLY, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise RlcliError(
                f"`{path}` is not used: others own it, or may read or write it",
                "remove it: rlcli writes a new one",
            )
        if status.st_nlink > 1:
            raise RlcliError(
                f"`{path}` is not used: it has another name, a hard link",
                "remove it: rlcli writes a new one",
            )
        return file.read(_LARGEST)


def create_private(path: Path, data: bytes) -> None:
    """Creates a file that only its user can read and write, unless it exists."""
    _make_folder(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with name_file_in_errors(path, "created"), contextlib.suppress(FileExistsError):
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def write_private(path: Path, data: bytes) -> None:
    """Replaces a file that only its user can read and write."""
    _make_folder(path)
    with replacing(path) as file:
        os.fchmod(file.fileno(), 0o600)  # before it has content
        file.write(data)


def _make_folder(path: Path) -> None:
    with name_file_in_errors(path.parent, "created"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)


def is_own(path: Path) -> bool:
    """Whether only the user and root can change a file, or what stands in its place.

    Checks the path and all folders above it, as written and without links. A group of
    which the user is the only member may write, as in distributions that give each
    user one. In a folder like /tmp others may write, but not replace the path.
    """
    full = Path(os.path.abspath(path))
    try:
        for each in (full, full.resolve(strict=True)):
            if not _is_own(each) or not all(_is_own(p, True) for p in each.parents):
                return False
    except (OSError, RuntimeError):  # missing, or links in a circle
        return False
    return True


def is_own_module(name: str, source: Path) -> bool:
    """Whether only the user and root can change a module, and what Python finds there.

    In the folders of the module others could add modules or bytecode. `name` is its
    path below an entry of `sys.path`, such as `my_parts/network.py`.
    """
    folders = source.parents[: len(PurePosixPath(name).parts)]
    places = [source, *folders, *filter(Path.exists, [source.parent / "__pycache__"])]
    return all(map(is_own, places))


def _is_own(path: Path, may_be_sticky: bool = False) -> bool:
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        return False
    if may_be_sticky and status.st_mode & stat.S_ISVTX:
        return True
    if status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or _is_private_group(status.st_gid)


def _is_private_group(group: int) -> bool:
    """Whether a group is that of the user alone: their main one, with their name."""
    with contextlib.suppress(KeyError):
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        is_main = (user.pw_gid, user.pw_name) == (group, entry.gr_name)
        return is_main and {*entry.gr_mem} <= {user.pw_name}
    return False
