"""Watchdog: reports a run that seems to hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

_PATIENCE = 60.0  # seconds between two checks
_IDLE = 0.01  # of one core: less processor time counts as idle


class Watchdog:
    """Context that checks every minute whether the process uses processor time.

    XLA's threads can deadlock; the process then uses no processor time. Work on
    an accelerator needs no processor time either.
    """

    def __init__(
        self, report: Callable[[str], None], patience: float = _PATIENCE
    ) -> None:
        self._report = report
        self._patience = patience
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()

    def _watch(self) -> None:
        time_before = time.process_time()
        while not self._stop.wait(self._patience):
            now = time.process_time()
            if now - time_before < _IDLE * self._patience:
                self._report(
                    f"the run has been idle for {self._patience:.0f} s: XLA's threads "
                    "may be deadlocked. Stop with Ctrl-C twice, then continue with "
                    "`NPROC=1 rlcli resume`"
                )
            time_before = now
