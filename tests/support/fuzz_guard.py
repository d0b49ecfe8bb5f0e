"""Guards of fuzzing: time, memory, clear errors, and no code from data."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.quoting import printable

MAX_SECONDS = 10  # of computation, which does not depend on the load of the machine
MAX_WAIT = 60  # seconds, for a case that waits for something
MAX_MEMORY = 2**30  # bytes more than before
LONGEST = 700  # characters of a message; most contain a path
CANARY = "fuzz_canary"  # a module that exists nowhere, which only data name
_FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "pickle.find_class"),
    *("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request"),
    *("ftplib.connect", "http.client.connect", "smtplib.connect", "webbrowser.open"),
)
# Events that change files, with the places of the paths among their arguments.
_CHANGES = {
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.truncate"), (0,)),
    **dict.fromkeys(("os.chmod", "os.chown", "os.utime", "shutil.rmtree"), (0,)),
    **dict.fromkeys(("os.rename", "os.link"), (0, 1)),
    **{"os.symlink": (1,), "shutil.move": (0, 1), "sqlite3.connect": (0,)},
}
_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class FoundError(AssertionError):
    """A case that is neither a success nor one clear error."""


class _Timeout(BaseException):
    """A case took too long."""


class Guard:
    """Runs cases in this process; files may change only below `folder`.

    An audit hook cannot be removed: make one guard for all cases.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        # JAX's own cache of programs, which no data can name.
        programs = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        self._allowed = (self._folder, "/dev/", "/proc/")
        self._allowed += (os.path.realpath(programs),) if programs else ()
        self._is_active = False
        self._is_data = False
        self._problem = ""
        self.slowest = 0.0
        sys.addaudithook(self._audit)

    @contextlib.contextmanager
    def limits(self) -> Iterator[None]:
        """Context with the limit of memory and the alarm; not for threads."""
        # Python would write the bytecode of modules that a case is the first to import.
        bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        before = resource.getrlimit(resource.RLIMIT_DATA)
        numbers = (signal.SIGALRM, signal.SIGPROF)
        handlers = [signal.signal(number, _raise_timeout) for number in numbers]
        with contextlib.suppress(OSError, ValueError):  # not Linux
            limit = _data_memory() + MAX_MEMORY
            resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
        try:
            yield
        finally:
            _set_alarms(0, 0)
            for number, handler in zip(numbers, handlers, strict=True):
                signal.signal(number, handler)
            resource.setrlimit(resource.RLIMIT_DATA, before)
            sys.dont_write_bytecode = bytecode

    def run(self, case: Callable[[], object], *, is_data: bool) -> bool:
        """Runs a case: whether it succeeded; raises `FoundError` for a defect.

        `is_data`: whether nothing that the case reads may be imported.
        """
        self._problem, self._is_data, start = "", is_data, time.perf_counter()
        _set_alarms(MAX_SECONDS, MAX_WAIT)
        self._is_active = True
        try:
            case()
            return self._finish(True)
        except RlcliError as error:
            check_message(error)
            return self._finish(False)
        except FoundError:
            raise
        except _Timeout:
            reason = f"computed for {MAX_SECONDS} s, or took {MAX_WAIT} s"
            raise FoundError(reason) from None
        except MemoryError as error:
            raise FoundError("needed more than 1 GiB") from error
        except Exception as error:
            raise FoundError(f"not a clear error: {error!r:.300}") from error
        finally:
            self._is_active = False
            _set_alarms(0, 0)
            self.slowest = max(self.slowest, time.perf_counter() - start)

    def _finish(self, is_success: bool) -> bool:
        if self._problem:
            raise FoundError(self._problem)
        return is_success

    def _audit(self, event: str, arguments: tuple) -> None:
        if not self._is_active or self._problem:
            return
        if event in _FORBIDDEN:
            self._problem = f"data caused `{event}` {arguments!r:.200}"
        elif event == "import" and self._is_data and str(arguments[0]) == CANARY:
            self._problem = f"data imported `{arguments[0]}`"
        elif event == "exec" and arguments[0].co_filename.startswith(self._folder):
            self._problem = f"data caused `{arguments[0].co_filename}` to run"
        elif event == "open" and (arguments[2] or 0) & _WRITE:
            self._check_place(event, arguments[0], not arguments[2] & os.O_NOFOLLOW)
        elif event in _CHANGES:
            for index in _CHANGES[event]:
                self._check_place(event, arguments[index], False)

    def _check_place(self, event: str, path: object, follows: bool) -> None:
        """Records a change outside of the folder; `follows`: also through a link."""
        if not isinstance(path, str | bytes | os.PathLike) or path == ":memory:":
            return
        try:
            # SQLite's own names of files: `file:PATH?mode=ro`.
            name = os.fsdecode(path).removeprefix("file:").partition("?mode=")[0]
            name = os.path.abspath(name)
            folder = os.path.realpath(os.path.dirname(name))
            name = os.path.join(folder, os.path.basename(name))
            name = os.path.realpath(name) if follows else name
        except (OSError, ValueError):  # no file can have such a name
            return
        if not name.startswith(self._allowed):
            self._problem = f"`{event}` outside of the folder: {name}"


def check_message(error: RlcliError) -> None:
    """Checks that an error is one line, and that it and its hint are printable."""
    if not error.message or "\n" in error.message or len(error.message) > LONGEST:
        raise FoundError(f"not one clear line: {error.message!r:.500}")
    if printable(str(error)) != str(error):
        raise FoundError(f"not printable: {error!s:.300}")


def _set_alarms(computing: float, waiting: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, computing)
    signal.setitimer(signal.ITIMER_REAL, waiting)


def _raise_timeout(*_: object) -> None:
    raise _Timeout


def _data_memory() -> int:
    """The memory of this process in bytes that its limit counts."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[5]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
