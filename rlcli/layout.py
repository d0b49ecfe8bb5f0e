"""Layout: the threads of a run, settled before JAX is imported. Imports no JAX.

What is wrong with a recipe or a path is left to the verb itself to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli import programs, threads
from rlcli.errors import RlcliError
from rlcli.threads import Layout


def for_recipe(
    recipe: str | Path | Mapping[str, Any], *, set: Sequence[str], seeds: int | None
) -> str:
    """Settles the threads for training a recipe; what to warn of, if it is too late."""
    from rlcli.recipe import (
        documents,  # here, for `--help` is to answer at once
        find,
    )

    try:
        if isinstance(recipe, Mapping):
            document = documents.from_mapping(recipe)
        else:
            document = documents.load(find(recipe))
        data = documents.merge(document, set).data
    except RlcliError:
        data = {}
    return _applied(threads.choose(data, seeds))


def for_run(path: str | Path) -> str:
    """Settles the threads for going on with a run: those that it began with."""
    return _applied(_recorded(path) or Layout("one", 1))


def _applied(layout: Layout) -> str:
    """Applies a layout; a sentence where JAX was imported with another one."""
    programs.remember()
    if threads.apply(layout) or threads.accelerated():
        return ""
    there = threads.current(layout.devices)
    if there["threads"] == layout.threads:
        return ""
    return (
        f"JAX was imported before rlcli could choose its threads: `{layout.threads}` "
        f"would suit this recipe, and it is `{there['threads']}`; set `NPROC=1` before "
        "Python starts, for several seeds in a pool of threads can wait for ever"
    )


def for_policy(path: str | Path) -> None:
    """Settles the threads for playing with what a run learnt.

    One device: all that is played goes through it as one batch.
    """
    layout = _recorded(path) or Layout("one", 1)
    _applied(layout._replace(devices=1))


def _recorded(path: str | Path) -> Layout | None:
    """The layout that a run was trained with; None where there is no such run."""
    from rlcli import checkpoint
    from rlcli.runs import locate_run

    try:
        run = locate_run(path)
        recorded = run.read_info().get("layout")
        if recorded is None and (latest := run.latest()):  # `run.json` is lost
            recorded = checkpoint.read(latest)["circumstances"]["layout"]
    except (RlcliError, LookupError, TypeError):
        return None
    return threads.recorded(recorded) if isinstance(recorded, Mapping) else None
