"""Limits: how long foreign code on the host may take."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any


class StepTimeoutError(Exception):
    """An environment took longer than it may."""


class Timeout:
    """A context that raises `StepTimeoutError` where it takes longer than `seconds`.

    In the main thread an alarm interrupts loops, sleeps and waiting for others. Code
    that does not return to Python, and other threads, are found out afterwards; so is
    everything where somebody else already uses the alarm.
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
    """The function, raising `StepTimeoutError` where it takes longer; as it is for
    None.
    """
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
    """Answers the alarm from now on, where nobody does; whether it is ours.

    It stays: changing the handler at every step costs more than stepping CartPole.
    """
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        signal.signal(signal.SIGALRM, _raise_timeout)
    return signal.getsignal(signal.SIGALRM) is _raise_timeout
