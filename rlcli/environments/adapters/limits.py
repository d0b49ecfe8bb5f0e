"""Limits: how long foreign code on the host may take."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any


class OverdueError(Exception):
    """An environment took longer than it may."""


class Limit:
    """A context that raises `OverdueError` where it takes longer than `seconds`.

    In the main thread an alarm interrupts loops, sleeps and waiting for others. Code
    that does not return to Python, and other threads, are found out afterwards; so is
    everything where somebody else already uses the alarm.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.main = threading.main_thread().ident
        self.rings = threading.get_ident() == self.main and _rings()

    def __enter__(self) -> None:
        self.began = time.perf_counter()
        if self.rings and threading.get_ident() == self.main:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *error: object) -> None:
        if self.rings and threading.get_ident() == self.main:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if time.perf_counter() - self.began > self.seconds:
            raise OverdueError


def limited(function: Callable, seconds: float | None) -> Callable:
    """The function, raising `OverdueError` where it takes longer; as it is for None."""
    if seconds is None:
        return function
    limit = Limit(seconds)

    def called(*args: Any, **keywords: Any) -> Any:
        with limit:
            return function(*args, **keywords)

    return called


def _ring(*_: object) -> None:
    raise OverdueError


def _rings() -> bool:
    """Answers the alarm from now on, where nobody does; whether it is ours.

    It stays: changing the handler at every step costs more than stepping CartPole.
    """
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        signal.signal(signal.SIGALRM, _ring)
    return signal.getsignal(signal.SIGALRM) is _ring
