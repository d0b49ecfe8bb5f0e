"""Locks: one process at a time trains into the folder of a run.

The operating system releases a lock when its process ends for any reason.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.runs.files import name_file_in_errors, open_regular

FILE_NAME = ".lock"
_PATIENCE = 0.05  # seconds to wait for a process that only tests the lock
_POLL = 0.01


class LockedError(RlcliError):
    """Another process is training into the folder."""

    def __init__(self, folder: Path, process: str) -> None:
        name = f"process {process}" if _is_alive(process) else "another process"
        super().__init__(
            f"{name} is already training into `{folder}`",
            "wait until it ends, or train into another folder",
        )


def _is_alive(process: str) -> bool:
    """Whether there is a process of this number; not if the lock is unsigned."""
    if not (process.isascii() and process.isdecimal()):
        return False
    try:
        os.kill(int(process), 0)
    except PermissionError:  # of another user
        return True
    except (OSError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Context that holds the lock of a folder; a `LockedError` if another process does.

    Writes nothing, except an empty file if there is none.
    """
    path, deadline = folder / FILE_NAME, time.monotonic() + _PATIENCE
    with open_regular(path, os.O_RDWR | os.O_CREAT, "r+", encoding="ascii") as file:
        while not _acquire(file.fileno()):
            if time.monotonic() > deadline:
                raise LockedError(folder, file.read(20).strip())
            time.sleep(_POLL)
        yield


def sign(folder: Path) -> None:
    """Writes the number of this process into the lock, for messages of others."""
    flags = os.O_WRONLY | os.O_CREAT
    path = folder / FILE_NAME
    with (
        name_file_in_errors(path, "written"),
        open_regular(path, flags, "w", encoding="ascii") as file,
    ):
        file.truncate()
        file.write(str(os.getpid()))


def is_free(folder: Path) -> bool:
    """Whether no process holds the lock; False if the file system has no locks."""
    path = folder / FILE_NAME
    if not path.exists():
        return True
    try:
        with open_regular(path, os.O_RDONLY) as file:
            # Shared: two such tests do not disturb each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, RlcliError):
        return False
    return True


def _acquire(descriptor: int) -> bool:
    """Whether the lock was free; True if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return True
    return True
