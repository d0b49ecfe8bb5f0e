"""The watchdog: says that a program seems to hang, instead of hanging in silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

_PATIENCE = 60.0  # seconds without any work before it is said
_IDLE = 0.01  # of one processor: less than that is none


class Watchdog:
    """While entered, looks every minute whether the process does anything at all.

    XLA's threads can wait for each other for ever; then no processor time passes. An
    accelerator works without any, so it is not watched there.
    """

    def __init__(self, say: Callable[[str], None], patience: float = _PATIENCE) -> None:
        self._say = say
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
                self._say(
                    f"nothing has moved for {self._patience:.0f} s: XLA's threads may "
                    "be waiting for each other. Stop with Ctrl-C twice, and go on with "
                    "`NPROC=1 rlcli resume`"
                )
            time_before = now
