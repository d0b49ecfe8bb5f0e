"""Signals: requests to stop or save a run, and a forced end if it cannot react.

| signal | first | second |
|---|---|---|
| INT (Ctrl-C), TERM, HUP | stops after a checkpoint | ends the process at once |
| USR1 | saves a checkpoint and continues | the same |

Python runs signal handlers only between two bytecode instructions, so a signal during
compilation or computation by XLA could wait for minutes. If the process belongs to
rlcli (`own_process`), a helper thread therefore reads the signals as well. It ends the
process if the run does not react within a few seconds, or at the second signal. That is
safe at any moment: every file of a run is replaced atomically, and a run resumes from
its newest checkpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType, TracebackType

_STATUS: Mapping[int, str] = MappingProxyType(
    {
        signal.SIGINT: "interrupted",
        signal.SIGTERM: "terminated",
        signal.SIGHUP: "hung_up",
    }
)
PATIENCE = 5.0  # seconds from the first signal until the run has to start stopping
PARENT = "RLCLI_PARENT"  # environment variable: the process that this one stops with
_PR_SET_PDEATHSIG = 1  # of Linux's `prctl`
_is_owned = False


@contextlib.contextmanager
def own_process() -> Iterator[None]:
    """Context in which this process only runs rlcli, so that signals may end it."""
    global _is_owned
    _stop_with_parent()
    before, _is_owned = _is_owned, True
    try:
        yield
    finally:
        _is_owned = before


def _stop_with_parent() -> None:
    """Requests SIGTERM for when the process in `PARENT` ends, on Linux.

    A killed process cannot stop the processes that it has started.
    """
    parent = os.environ.pop(PARENT, "")
    if not parent or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it has already ended
        signal.raise_signal(signal.SIGTERM)


class Signals:
    """Context in which signals become requests that the run handles between chunks.

    Outside the main thread, where Python allows no handlers, it catches no signals. A
    HUP that the process ignores, as under `nohup`, stays ignored.
    """

    def __init__(
        self,
        abandon: Callable[[str], None] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`abandon(status)` has to end the process; the helper thread calls it.

        Without it, or in a process that rlcli does not own, there is no helper thread,
        and a second signal has its usual effect. The attribute `abandon` may be
        replaced while signals are caught.
        """
        self.status = ""  # of the run after a request to stop
        self.is_stop_requested = False  # set at once, also while XLA computes
        self._first_status = ""  # that the helper thread has read
        self._save = False
        self.abandon = abandon if _is_owned else None
        self._patience = patience
        self._acknowledged = threading.Event()
        self._previous_handlers: dict[int, object] = {}
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._wakeup_before = -1

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self
        if self.abandon is not None:
            self._start_thread()
        for number in (*_STATUS, signal.SIGUSR1):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore_handlers()
        if self._sockets is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            reader, writer = self._sockets
            writer.close()  # the thread reads the end, and returns
            self._thread.join()
            reader.close()
            self._sockets = None

    def acknowledge(self) -> None:
        """Acknowledges that the run is stopping, for which it may take its time."""
        self._acknowledged.set()

    def forget_requests(self) -> None:
        """Forgets all requests to stop, so that the next signal is a first one."""
        self.status = self._first_status = ""
        self.is_stop_requested = False

    def take_save_request(self) -> bool:
        """Whether a checkpoint was requested since the last call."""
        requested, self._save = self._save, False
        return requested

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGUSR1:
            self._save = True
        elif self.status and self._sockets is None:
            self._restore_handlers()
            signal.raise_signal(number)
        else:
            self.status = self.status or _STATUS[number]
            self.is_stop_requested = True

    def _restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # as it was given

    def _start_thread(self) -> None:
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        reader.setblocking(False)
        self._sockets = (reader, writer)
        self._wakeup_before = signal.set_wakeup_fd(
            writer.fileno(), warn_on_full_buffer=False
        )
        self._thread = threading.Thread(
            target=self._supervise, args=(reader,), daemon=True
        )
        self._thread.start()

    def _supervise(self, reader: socket.socket) -> None:
        """Reads the signals, one byte each, and calls `abandon` when necessary."""
        while True:
            is_waiting = self._first_status and not self._acknowledged.is_set()
            timeout = self._patience if is_waiting else None
            ready, _, _ = select.select([reader], [], [], timeout)
            if not ready:
                if self._acknowledged.is_set():
                    continue
                self._end_process(self._first_status)
            numbers = b""
            with contextlib.suppress(BlockingIOError):
                numbers = reader.recv(1024)
            if ready and not numbers:
                return
            for number in numbers:
                if number in _STATUS:
                    if self._first_status:
                        self._end_process(self._first_status)
                    self._first_status = _STATUS[number]
                    self.is_stop_requested = True

    def _end_process(self, status: str) -> None:
        if self.abandon is not None:
            self.abandon(status)


def exit_now(code: int, *, message: str, data: str) -> None:
    """Ends the process immediately, without cleanup.

    Python's buffers are lost, so `message` and `data` are written directly to stderr
    and stdout. The terminal's cursor becomes visible again.
    """
    show_cursor = "\x1b[?25h\r\n" if os.isatty(2) else ""
    for descriptor, text in ((2, f"{show_cursor}{message}"), (1, data)):
        with contextlib.suppress(OSError):
            os.write(descriptor, f"{text}\n".encode())
    os._exit(code)
