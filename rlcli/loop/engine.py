"""The engine of a run: what every loop offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rlcli.loop.progress import Progress
from rlcli.types import Array, ArrayTree


class Loop(NamedTuple):
    """A run's engine, for all its seeds at once."""

    begin: Callable[[], Progress]
    advance: Callable[[Progress, int], tuple[Progress, Mapping[str, Array]]]
    # (progress, iterations) -> progress, metrics of the last update, `[S]` each
    save: Callable[[Progress], ArrayTree]  # arrays alone
    restore: Callable[
        [ArrayTree], tuple[Progress, str]
    ]  # and what it could not restore
    shapes: Callable[[], Progress]  # of what `save` gives, but for a host environment:
    # the whole program is traced for it, so that what does not fit shows
    close: Callable[[Progress], None]
    temporaries: Callable[[], int]
    # bytes that its program takes beside progress, at least; all devices together
