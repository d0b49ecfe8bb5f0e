"""Time limits for calls of external code on the host."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any


class StepTimeoutError(Exception):
    """A call of an environment exceeded its timeout."""


class Timeout:
    """A context that raises `StepTimeoutError` if it takes longer than `seconds`.

    In the main thread SIGALRM interrupts loops, sleeps and waiting. Code that does not
    return to Python, and code in other threads, is only checked afterwards, and so is
    all code if another handler of SIGALRM is installed.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.main_thread = threading.main_thread().ident
        self.uses_alarm = threading.get_ident() == self.main_thread and _install_alarm()

    def __enter__(self) -> None:
        self.start = time.perf_counter()
        if self.uses_alarm and threading.get_ident() == self.main_thread:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *error: object) -> None:
        if self.uses_alarm and threading.get_ident() == self.main_thread:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if time.perf_counter() - self.start > self.seconds:
            raise StepTimeoutError


def with_timeout(function: Callable, seconds: float | None) -> Callable:
    """Makes a function raise `StepTimeoutError` after `seconds`; None: no limit."""
    if seconds is None:
        return function
    limit = Timeout(seconds)

    def call(*args: Any, **keywords: Any) -> Any:
        with limit:
            return function(*args, **keywords)

    return call


def _raise_timeout(*_: object) -> None:
    raise StepTimeoutError


def _install_alarm() -> bool:
    """Installs a handler of SIGALRM if there is none; returns whether it is ours.

    The handler stays installed: changing it at every step costs more than a step of
    CartPole.
    """
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        signal.signal(signal.SIGALRM, _raise_timeout)
    return signal.getsignal(signal.SIGALRM) is _raise_timeout
