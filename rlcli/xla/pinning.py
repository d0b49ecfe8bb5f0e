"""Pinning: threads that take turns stay on one core. Imports no JAX.

Where every step of an environment is a dispatch, Python and XLA's one thread wait for
each other thousands of times a second. To wake a core that sleeps takes as long as a
whole step does on virtual machines: on one core 6 000 steps were made where on two it
was 3 300.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_TASKS = Path("/proc/self/task")
_CORE_FIELD = (
    36  # the field of `stat`, counted after the name, that says where a thread is
)


@contextlib.contextmanager
def pin_threads() -> Iterator[None]:
    """Keeps all threads on the core that this one is on; does nothing but on Linux.

    For less than a second at a time: in between the system may choose another core, so
    that several processes do not stay together on one.
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
    """Lets all threads of this process run on these cores alone."""
    for task in os.listdir(_TASKS):
        with contextlib.suppress(OSError):  # it has just ended, or we may not
            os.sched_setaffinity(int(task), cores)
