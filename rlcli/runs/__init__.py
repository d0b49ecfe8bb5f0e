"""Runs: reads and writes the files of a run.

Belongs here: run folder, checkpoints, snapshots, metrics, statistics, provenance.
May import: recipe, `replays.datasets.names`, and the ground. `snapshots` may also
import loop and assembly, and `frozen` also `updaters.optimizers`.

The package is callable, because the command `rlcli runs` is the function `rlcli.runs`.
"""

import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls `rlcli.runs.listing.runs`."""
        from rlcli.runs import listing

        return listing.runs(*arguments, **keywords)


sys.modules[__name__].__class__ = _Callable
