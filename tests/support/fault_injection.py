"""Fault injection: makes the N-th operation on the files of a folder fail.

`PythonInjector` replaces the functions of `os` and `io` through which Python reaches
files; it needs no compiler. `tests/faults/shim.c` does the same to the C library.

A kill is simulated: from the N-th operation on, nothing changes on the disk any more,
which is the state that SIGKILL leaves there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock


class Fault(NamedTuple):
    """What happens at the N-th operation."""

    name: str
    errno: int = 0
    lasts: bool = False  # whether later operations fail as well
    only_writes: bool = False  # whether only operations that need space fail


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("ENOSPC", errno.ENOSPC, lasts=True, only_writes=True),
        Fault("EIO", errno.EIO),
        Fault("EINTR", errno.EINTR),  # Python repeats the call: only for the C library
        Fault("short"),  # a write writes half of its bytes
        Fault("kill", lasts=True),
    )
}
_WRITES = ("create", "write", "fsync", "replace", "rename", "mkdir")


class KilledError(BaseException):
    """The process would have ended here."""


class PythonInjector:
    """Counts the operations on files below `root`, and makes one of them fail."""

    faults = ("ENOSPC", "EIO", "short", "kill")

    def __init__(self) -> None:
        self.operations: list[str] = []  # since the last `inject`
        self._root = ""
        self._fault: Fault | None = None
        self._at = 0
        self._paths: dict[int, str] = {}  # of open descriptors

    @contextlib.contextmanager
    def inject(self, root: Path, fault: str = "", at: int = 0) -> Iterator[None]:
        """Makes the operation with the number `at`, from 1, fail; none without it."""
        self.operations, self._paths = [], {}
        self._root, self._at = f"{root}", at
        self._fault = FAULTS[fault] if fault else None
        with contextlib.ExitStack() as stack:
            for target, name, replacement in self._replacements():
                stack.enter_context(mock.patch.object(target, name, replacement))
            yield

    @property
    def count(self) -> int:
        """The number of operations since the last `inject`."""
        return len(self.operations)

    @property
    def is_hit(self) -> bool:
        """Whether the fault happened."""
        return self._fault is not None and self.count >= self._at

    def call(self, kind: str, path: Any, function: Callable, *args: Any, **kw: Any):
        """Calls a function of `os` as an operation, unless it has to fail."""
        name = self._name(path)
        if name is None:
            return function(*args, **kw)
        error = self._next(kind, name)
        if error is not None and kind == "close":
            function(*args, **kw)
        if error is not None:
            raise error
        return function(*args, **kw)

    def write(self, path: str, data: Any, function: Callable[[Any], int]) -> int:
        """Writes data as one operation; a short write or a kill writes half of them."""
        error = self._next("write", path)
        fault = self._fault
        if fault and fault.name in ("short", "kill") and self.count == self._at:
            view = memoryview(data).cast("B")
            written = function(view[: (len(view) + 1) // 2])
            if error is None:
                return written
        if error is not None:
            raise error
        return function(data)

    def _next(self, kind: str, name: str) -> BaseException | None:
        """Counts an operation; the error with which it fails."""
        self.operations.append(f"{kind} {name.removeprefix(self._root)}")
        fault = self._fault
        if fault is None or self.count < self._at:
            return None
        if self.count > self._at and not fault.lasts:
            return None
        if fault.name == "kill":
            return KilledError()
        if fault.name == "short" or (fault.only_writes and kind not in _WRITES):
            return None
        return OSError(fault.errno, os.strerror(fault.errno), name)

    def _name(self, path: Any) -> str | None:
        """The path of a file below the root; None for another."""
        if isinstance(path, int):
            return self._paths.get(path)
        name = os.path.abspath(os.fsdecode(path))
        return name if name.startswith(self._root) else None

    def _replacements(self) -> list[tuple[Any, str, Callable]]:
        """The functions to replace: (module, name, replacement)."""
        simple = [
            (os, name, self._wrap(kind, getattr(os, name)))
            for name, kind in (
                ("replace", "replace"),
                ("rename", "rename"),
                ("unlink", "unlink"),
                ("remove", "unlink"),
                ("mkdir", "mkdir"),
                ("rmdir", "rmdir"),
                ("stat", "stat"),
                ("lstat", "stat"),
                ("scandir", "scandir"),
                ("listdir", "scandir"),
                ("fsync", "fsync"),
                ("fstat", "stat"),
                ("close", "close"),
            )
        ]
        return [
            *simple,
            (os, "open", self._wrap_os_open(os.open)),
            (io, "open", self._wrap_io_open(io.open)),
        ]

    def _wrap(self, kind: str, function: Callable) -> Callable:
        def replacement(path: Any = ".", *args: Any, **keywords: Any) -> Any:
            result = self.call(kind, path, function, path, *args, **keywords)
            if kind == "close":
                self._paths.pop(path, None)
            return result

        return replacement

    def _wrap_os_open(self, function: Callable) -> Callable:
        def replacement(path: Any, flags: int, *args: Any, **keywords: Any) -> int:
            kind = "create" if flags & (os.O_CREAT | os.O_TRUNC) else "open"
            descriptor = self.call(kind, path, function, path, flags, *args, **keywords)
            if (name := self._name(path)) is not None:
                self._paths[descriptor] = name
            return descriptor

        return replacement

    def _wrap_io_open(self, function: Callable) -> Callable:
        def replacement(file: Any, mode: str = "r", *args: Any, **keywords: Any) -> Any:
            name = self._name(file)
            if name is None or "opener" in keywords:  # which calls `os.open`
                return function(file, mode, *args, **keywords)
            if not isinstance(file, int):
                kind = "open" if mode.startswith("r") and "+" not in mode else "create"
                error = self._next(kind, name)
                if error is not None:
                    raise error
            return _open_file(self, name, file, mode, *args, **keywords)

        return replacement


class _File(io.FileIO):
    """A file whose operations are counted."""

    def __init__(self, injector: PythonInjector, path: str, *args: Any) -> None:
        self._injector = injector
        self._path = path
        super().__init__(*args)

    def write(self, data: Any) -> int:
        return self._injector.write(self._path, data, super().write)

    def readinto(self, buffer: Any) -> int:
        return self._injector.call("read", self._path, super().readinto, buffer)

    def readall(self) -> bytes:
        return self._injector.call("read", self._path, super().readall)

    def truncate(self, *args: Any) -> int:
        return self._injector.call("write", self._path, super().truncate, *args)

    def close(self) -> None:
        if not self.closed:
            self._injector.call("close", self._path, super().close)


def _open_file(
    injector: PythonInjector,
    path: str,
    file: Any,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """As `open`, with a raw file whose operations are counted."""
    del buffering
    raw = _File(injector, path, file, mode.replace("b", "").replace("t", ""))
    if "+" in mode:
        buffer: Any = io.BufferedRandom(raw)
    elif mode.startswith("r"):
        buffer = io.BufferedReader(raw)
    else:
        buffer = io.BufferedWriter(raw)
    if "b" in mode:
        return buffer
    text = io.TextIOWrapper(buffer, encoding or "utf-8", errors, newline)
    text.mode = mode  # type: ignore[misc] # `open` sets it too
    return text


class ShimInjector:
    """Makes calls of the C library fail, in a process with `tests/faults/shim.c`.

    A kill lets all later calls fail, so that the run ends with an error; the disk is as
    after SIGKILL.
    """

    faults = ("ENOSPC", "EIO", "EINTR", "short", "kill")

    def __init__(self) -> None:
        self._shim = ctypes.CDLL(None)

    @contextlib.contextmanager
    def inject(self, root: Path, fault: str = "", at: int = 0) -> Iterator[None]:
        """As `PythonInjector.inject`."""
        modes = {"ENOSPC": 2, "EIO": 1, "EINTR": 1, "short": 3, "kill": 4, "": 0}
        code = FAULTS[fault].errno if fault in FAULTS else 0
        self._shim.faults_arm(
            os.fsencode(root), ctypes.c_long(at), modes[fault], code or errno.EIO
        )
        try:
            yield
        finally:
            self.count = int(self._shim.faults_count())
            self._shim.faults_arm(b"", ctypes.c_long(0), 0, 0)
