"""Paths: those that a user names hold, whatever folder the code of others enters.

An environment or a module may change the working directory of the process. So the
paths that enter a public function are made absolute once, before any code of others
runs (`resolves`). `errors.as_typed` shows them as they were typed.
"""

import contextlib
import errno
import functools
import inspect
import io
import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rlcli.errors import remember_path

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class _Entry(threading.local):
    """The directory in which the current function of a thread was called."""

    folder: str | None = None


_entry = _Entry()
# The directory of the process is that of all its threads.
_left: tuple[str, str] | None = None  # where one has left the process, and before it


def shipped_path(name: str) -> Path:
    """A file or folder that comes with rlcli, such as `recipes`.

    It is inside the package when installed, and beside it in a checkout.
    """
    package = Path(__file__).parents[1]
    paths = (package / name, package.parent / name)
    return next((path for path in paths if path.exists()), paths[0])


def directory() -> str:
    """The working directory of the user; "" if it has been removed.

    That of the process may be another one, in which code of others has left it.
    """
    if _entry.folder is not None:
        return _entry.folder
    current = _process_directory()
    return _left[1] if _left and _left[0] == current else current


def _process_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


@contextlib.contextmanager
def keep_directory(folder: str | None = None) -> Iterator[None]:
    """Context in which `directory` does not change, also if the process leaves it.

    It is `folder`, by default the directory at its beginning.
    """
    global _left
    if _entry.folder is not None:
        yield
        return
    own, before = directory(), _process_directory()
    _entry.folder = own if folder is None else folder
    try:
        yield
    finally:
        if (current := _process_directory()) != before:
            _left = current, own
        _entry.folder = None


def keep_in_steps(generator: Generator[T, None, R]) -> Generator[T, None, R]:
    """The generator, for which `directory` is that of this call whenever it runs."""
    folder = directory()

    def steps() -> Generator[T, None, R]:
        try:
            while True:
                with keep_directory(folder):
                    try:
                        item = next(generator)
                    except StopIteration as end:
                        return end.value
                yield item
        finally:
            with keep_directory(folder):
                generator.close()

    return steps()


def enter(path: str | Path) -> Path:
    """The absolute path of a file or folder that a user names."""
    path = Path(path)
    if path.is_absolute() or not (folder := directory()):
        return path
    full = Path(folder, path)
    remember_path(str(full), str(path))
    return full


def open_file(path: Path) -> io.BufferedReader:
    """Opens a file that a user names, or a link leads to, for reading.

    Raises an `IsADirectoryError` for anything else: opening or reading a pipe or a
    device might never end. A file of the system, as in /proc, may be like a pipe: it
    is not waited for, and `read` returns None.
    """
    _check_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_regular(descriptor)  # another process may have replaced it
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(file: Path | int) -> None:
    if not stat.S_ISREG(os.stat(file).st_mode):
        reason = "it is a folder or a device, not a file"
        raise IsADirectoryError(errno.EISDIR, reason)


def enter_url(url: str) -> str:
    """The same for the URL of a database file, `sqlite:///a.db`, or for a folder."""
    scheme, mark, path = url.partition(":///")
    if mark and scheme.partition("+")[0] == "sqlite":
        is_file = path and not path.startswith((":", "file:"))
        return f"{scheme}{mark}{enter(path)}" if is_file else url
    return str(enter(url)) if "/" in url and ":" not in url else url


def _enter_existing(name: Any, exists: Callable[[Path], bool]) -> Any:
    """The same for what may also be a name, or data: of a recipe, for example."""
    if isinstance(name, str | Path):
        with contextlib.suppress(OSError, ValueError):  # no name of a file
            if exists(Path(directory(), name)):
                return type(name)(enter(name))
    elif isinstance(name, list | tuple):
        return [_enter_existing(each, exists) for each in name]
    return name


def resolves(
    *existing: str, recipes: str = "", new: tuple[str, ...] = ()
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of a public function, whose arguments with these names are paths.

    Those of files or folders that exist, and `new` ones, become absolute. A folder can
    have the name of a built-in recipe, so `recipes` are files.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        tests = dict.fromkeys(existing, os.path.lexists)
        tests |= {recipes: os.path.isfile} if recipes else {}

        @functools.wraps(function)
        def call(*arguments: P.args, **keywords: P.kwargs) -> T:
            try:
                bound = signature.bind(*arguments, **keywords)
            except TypeError as error:  # names no function, as Python's own does
                raise TypeError(f"{function.__name__}() {error}") from None
            bound.apply_defaults()
            given = bound.arguments
            with keep_directory():
                for key, exists in tests.items():
                    given[key] = _enter_existing(given[key], exists)
                for key in new:
                    given[key] = None if given[key] is None else enter(given[key])
                return function(*bound.args, **bound.kwargs)

        return call

    return decorate
