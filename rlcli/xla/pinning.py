"""Pinning: keeps threads that wait for each other on one core. Does not import JAX.

In the host loop, Python and the single thread of XLA wait for each other thousands of
times a second. On virtual machines, waking an idle core takes as long as a whole step:
one core made 6 000 steps where two made 3 300.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_TASKS = Path("/proc/self/task")
_CORE_FIELD = 36  # index of the field `processor` of `stat`, after the name


@contextlib.contextmanager
def pin_threads() -> Iterator[None]:
    """Pins all threads to the core of the current thread; Linux only, else no effect.

    Used for less than a second at a time. In between the system may choose another
    core, so that several processes do not share one.
    """
    if not _TASKS.is_dir() or not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed_cores = os.sched_getaffinity(0)
    _set_affinity({_current_core()})
    try:
        yield
    finally:
        _set_affinity(allowed_cores)


def _current_core() -> int:
    """The core that this thread runs on."""
    fields = Path("/proc/thread-self/stat").read_text(encoding="utf-8")
    return int(fields.rpartition(")")[2].split()[_CORE_FIELD])


def _set_affinity(cores: set[int]) -> None:
    """Restricts all threads of this process to the given cores."""
    for task in os.listdir(_TASKS):
        with contextlib.suppress(
            OSError
        ):  # the thread has ended, or permission is denied
            os.sched_setaffinity(int(task), cores)
