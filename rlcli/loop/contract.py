"""The interface of a training loop."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlcli.loop.log import Log
from rlcli.loop.progress import Progress
from rlcli.types import ArrayTree


class Loop(NamedTuple):
    """A training loop, for all seeds of a run simultaneously."""

    begin: Callable[[], Progress]
    # (progress, counts) -> progress, log: `counts` are increasing numbers of
    # iterations. Runs `counts[-1]` iterations, and logs a row after each count. The
    # arrays of the given progress are donated: they can no longer be used.
    advance: Callable[[Progress, int | Sequence[int]], tuple[Progress, Log]]
    # progress -> the arrays of a checkpoint
    save: Callable[[Progress], ArrayTree]
    # arrays -> progress, and a message about state that could not be restored, or ""
    restore: Callable[[ArrayTree], tuple[Progress, str]]
    # () -> the shapes of the arrays of `save`, without the state of a host environment
    shapes: Callable[[], Progress]
    close: Callable[[Progress], None]
    # () -> a lower bound on the bytes of temporary arrays, over all devices. Traces the
    # program, so that inconsistent parts and arrays that do not fit in memory raise an
    # error.
    temporary_bytes: Callable[[], int]
    # () -> the compiled program of `advance`, as text: a profile takes the names of
    # operations from it
    hlo: Callable[[], str]
