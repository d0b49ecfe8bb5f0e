"""The interface of a training loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlcli.loop.log import Log
from rlcli.loop.progress import Progress
from rlcli.types import ArrayTree


class Loop(NamedTuple):
    """A training loop, for all seeds of a run simultaneously."""

    begin: Callable[[], Progress]
    advance: Callable[[Progress, int | Sequence[int]], tuple[Progress, Log]]
    # (progress, counts) -> progress, log: `counts` are increasing numbers of
    # iterations. Runs the last one, and writes a row of the log after each.
    save: Callable[[Progress], ArrayTree]  # arrays only
    restore: Callable[[ArrayTree], tuple[Progress, str]]
    # saved -> progress, and a message that names what could not be restored
    shapes: Callable[[], Progress]
    # the shapes of what `save` returns, without the state of a host environment
    close: Callable[[Progress], None]
    temporaries: Callable[[], int]
    # bytes of temporary arrays of the program, at least, over all devices; traces it,
    # so that inconsistent parts and arrays that do not fit in memory raise an error
    hlo: Callable[[], str]
    # the compiled program of `advance`, as text: names its operations for a profile
