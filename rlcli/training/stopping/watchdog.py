"""Watchdog: reports a run that seems to hang."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_IDLE = 0.01  # of one core: less processor time counts as idle


@contextlib.contextmanager
def report_idling(
    report: Callable[[str], None], patience: float = 60.0
) -> Iterator[None]:
    """Context that checks every `patience` seconds whether processor time is used.

    XLA's threads can deadlock; the process then uses no processor time. Work on
    an accelerator needs no processor time either.
    """
    stop = threading.Event()

    def watch() -> None:
        time_before = time.process_time()
        while not stop.wait(patience):
            now = time.process_time()
            if now - time_before < _IDLE * patience:
                report(
                    f"the run has been idle for {patience:.0f} s: XLA's threads may be "
                    "deadlocked. Stop with Ctrl-C twice, then continue with "
                    "`NPROC=1 rlcli resume`"
                )
            time_before = now

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
