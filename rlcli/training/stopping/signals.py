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

A signal that has stopped a run then reaches the caller, as an exception
(`rlcli.training.stopping.stops`).

The last receiver to end restores the handlers of before, and `stops` then
raises what the signal means in Python, so no caller of a public function takes a run
that was stopped for one that has finished. Commands take the `result` of that exception
(`cli.training_outcome.complete`), because they report runs that were stopped.
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
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from rlcli.errors import EXIT_CODES
from rlcli.monitor.notebook import is_notebook
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS, Stop, resend, signal_of

PATIENCE = 5.0  # seconds from the first signal until the run has to start stopping
PARENT = "RLCLI_PARENT"  # environment variable: the process that this one stops with
_PR_SET_PDEATHSIG = 1  # of Linux's `prctl`
_is_owned = False
_data = 1  # the descriptor of stdout
_receivers: list[SignalReceiver] = []
_previous: dict[int, Any] = {}  # the handlers from before the first receiver


@contextlib.contextmanager
def own_process(data: int = 1) -> Iterator[None]:
    """Context in which this process only runs rlcli, so that signals may end it.

    `data` is the descriptor of stdout.
    """
    global _is_owned, _data
    _stop_with_parent()
    before = _is_owned, _data
    _is_owned, _data = True, data
    try:
        yield
    finally:
        _is_owned, _data = before


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


class SignalReceiver:
    """Context in which a function receives the signals of this process.

    Outside the main thread, where Python allows no handlers, it receives none. Signals
    that another library handles in C, and a HUP that the process ignores, as under
    `nohup`, are not received either. Several receivers get the same signals, and the
    last one to end restores the handlers from before the first one.
    """

    def __init__(self, receive: Callable[[int], None]) -> None:
        self._receive = receive

    def __enter__(self) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return self
        if not _receivers:
            for number in (*STATUS_OF_SIGNALS, signal.SIGUSR1):
                handler = signal.getsignal(number)
                is_ignored = number == signal.SIGHUP and handler is signal.SIG_IGN
                if handler is not None and not is_ignored:
                    _previous[number] = handler
                    signal.signal(number, _dispatch)
        _receivers.append(self)
        return self

    def __exit__(self, *raised: Any) -> None:
        if self in _receivers:
            _receivers.remove(self)
        if not _receivers:
            _restore_handlers()


def _dispatch(number: int, frame: FrameType | None) -> None:
    """Passes a signal to all receivers; to the handler of before if there are none."""
    if not _receivers:
        _pass_on(number)
    for receiver in [*_receivers]:
        receiver._receive(number)


def _pass_on(number: int) -> None:
    """Lets a signal have the effect that it has without rlcli."""
    _restore_handlers()
    signal.raise_signal(number)


def _restore_handlers() -> None:
    """Restores the handlers of before, except where others have replaced ours."""
    if threading.current_thread() is not threading.main_thread():
        return  # a generator that is collected there; `_dispatch` passes signals on
    for number, handler in _previous.items():
        if signal.getsignal(number) is _dispatch:
            signal.signal(number, handler)
    _previous.clear()


def _forget_stops() -> None:
    """Forgets which runs have to raise at their ends: the program gets the signal."""
    for receiver in _receivers:
        if isinstance(receiver, Signals):
            receiver._stopped_by = ""


class Signals(SignalReceiver):
    """Context in which signals become requests that the run handles between chunks.

    At its end, a request to stop raises what `stop` says, unless this is a notebook.
    """

    def __init__(
        self,
        abandon: Callable[[str], None] | None = None,
        patience: float = PATIENCE,
        stop: Stop | None = None,
    ) -> None:
        """`abandon(status)` has to end the process; the helper thread calls it.

        Without it, or in a process that rlcli does not own, there is no helper thread,
        and a second signal has its usual effect. The attribute `abandon` may be
        replaced while signals are caught.
        """
        super().__init__(self._handle)
        self.status = ""  # of the run after a request to stop
        self.is_stop_requested = False  # set at once, also while XLA computes
        self.stop = stop
        self._stopped_by = ""  # the status of the first request, never forgotten
        self._first_status = ""  # that the helper thread has read
        self._save = False
        self.abandon = abandon if _is_owned else None
        self._patience = patience
        self._acknowledged = threading.Event()
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._wakeup_before = -1

    def __enter__(self) -> Signals:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self.abandon is not None:
            self._start_thread()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if self._sockets is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            reader, writer = self._sockets
            writer.close()  # the thread reads the end, and returns
            self._thread.join()
            reader.close()
            self._sockets = None
        if self.stop is not None:
            self._deliver(self.stop, raised[1])

    def _deliver(self, stop: Stop, error: BaseException | None) -> None:
        """Raises the exception of a request to stop, so that no caller misses it."""
        status = self._stopped_by
        if isinstance(error, (KeyboardInterrupt, SystemExit)):  # of a second signal
            stop.describe(error)
        elif status and not (_is_owned and isinstance(error, Exception)):
            _forget_stops()  # the program gets it once
            if isinstance(error, GeneratorExit):
                resend(status)
            else:
                deliver(stop, status)

    def acknowledge(self) -> None:
        """Acknowledges that the run is stopping, for which it may take its time."""
        self._acknowledged.set()

    def adopt(self, status: str) -> None:
        """Takes part in a stop that a signal to another process has requested."""
        if status in STATUS_OF_SIGNALS.values():
            self._stopped_by = self._stopped_by or status

    def forget_requests(self) -> None:
        """Forgets all requests to stop, so that the next signal is a first one."""
        self.status = self._first_status = ""
        self.is_stop_requested = False

    def take_save_request(self) -> bool:
        """Whether a checkpoint was requested since the last call."""
        requested, self._save = self._save, False
        return requested

    def _handle(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._save = True
        elif self.status and self._sockets is None:
            _forget_stops()
            _pass_on(number)
        else:
            self.status = self.status or STATUS_OF_SIGNALS[number]
            self._stopped_by = self._stopped_by or self.status
            self.is_stop_requested = True

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
                if number in STATUS_OF_SIGNALS:
                    if self._first_status:
                        self._end_process(self._first_status)
                    self._first_status = STATUS_OF_SIGNALS[number]
                    self.is_stop_requested = True

    def _end_process(self, status: str) -> None:
        if self.abandon is not None:
            self.abandon(status)


def deliver(stop: Stop, status: str) -> None:
    """Raises the exception of a status; returns if a notebook is interrupted.

    A handler that the user has installed for the signal is called first, and may raise
    an exception of its own.
    """
    if status == "interrupted" and is_notebook():
        return
    number = signal_of(status)
    error: BaseException = KeyboardInterrupt()
    if number != signal.SIGINT:
        error = SystemExit(EXIT_CODES[status])
    handler = signal.getsignal(number)
    if handler is _dispatch:  # of other runs, which have received the signal
        handler = _previous[number]
    if callable(handler) and handler is not signal.default_int_handler:
        try:
            handler(number, sys._getframe())
        except BaseException as own:
            stop.describe(own)
            raise
    stop.describe(error)
    raise error from None


def exit_now(code: int, *, message: str, data: str) -> None:
    """Ends the process immediately, without cleanup.

    Python's buffers are lost, so `message` and `data` are written directly to stderr
    and stdout. The terminal's cursor becomes visible again.
    """
    show_cursor = "\x1b[?25h\r\n" if os.isatty(2) else ""
    for descriptor, text in ((2, f"{show_cursor}{message}"), (_data, data)):
        with contextlib.suppress(OSError):
            os.write(descriptor, f"{text}\n".encode())
    os._exit(code)
