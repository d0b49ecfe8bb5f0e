"""Stops: how a function of rlcli ends after a signal has stopped it.

The run has its checkpoint, but the program that called the function was asked to stop:
if the function returned, a script would go on with a policy that is half trained. So it
raises what the signal means in Python, `KeyboardInterrupt` or `SystemExit`. In a
notebook the interrupt button ends the function only, which then returns.
"""

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError

STATUS_OF_SIGNALS: Mapping[int, str] = {  # of what a signal stops
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hung_up",
}
_RESEND = 0.5  # seconds, in which a generator that is being closed has ended


@dataclasses.dataclass(frozen=True)
class Stop:
    """What a function that is stopped by a signal leaves behind.

    The exception has the fields `run` and `result` as attributes, and the text as a
    note, which tracebacks show.
    """

    run: Path  # the folder of the run, of a sweep or of several runs
    result: Callable[[], Any]  # what the function returns if it is not stopped
    text: Callable[[], str]  # what has happened, and how to continue

    def describe(self, error: BaseException) -> None:
        """Adds the fields to an exception, unless it already has them."""
        if not hasattr(error, "run"):
            error.run = self.run  # type: ignore[attr-defined]
            error.result = self.result()  # type: ignore[attr-defined]
            with contextlib.suppress(RlcliError):  # a disk that fails
                error.add_note(self.text())


def signal_of(status: str) -> int:
    """The signal that gives runs a status."""
    return next(n for n, name in STATUS_OF_SIGNALS.items() if name == status)


def resend(status: str) -> None:
    """Sends a signal again, once the generator that has received it is closed.

    An exception in a generator that is being closed would reach nobody.
    """
    number = signal_of(status)
    timer = threading.Timer(_RESEND, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def stopping_with(run: Path, result: Callable[[Any], Any]) -> Iterator[None]:
    """Context of a function that calls another one, which may be stopped.

    The exception gets the result of the outer function, `result` of the inner one's.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if hasattr(stop, "run"):
            inner = stop.result  # type: ignore[union-attr]
            stop.run, stop.result = run, result(inner)  # type: ignore[union-attr]
        raise
