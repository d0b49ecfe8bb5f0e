"""Layout: the threads of a command, settled before it imports JAX.

What is wrong with a recipe or a path is left to the verb itself to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli import threads
from rlcli.errors import RlcliError
from rlcli.threads import Layout


def for_recipe(recipe: str, *, set: Sequence[str], seeds: int | None) -> None:
    """Settles the threads for training a recipe."""
    from rlcli import documents  # here, for `--help` is to answer at once
    from rlcli.recipe import find

    try:
        data = documents.merge(documents.load(find(recipe)), set).data
    except RlcliError:
        data = {}
    threads.apply(threads.choose(data, seeds))


def for_run(path: Path) -> None:
    """Settles the threads for going on with a run: those that it began with."""
    threads.apply(_recorded(path) or Layout("one", 1))


def for_policy(path: str | Path) -> None:
    """Settles the threads for playing with what a run learnt.

    One device: all that is played goes through it as one batch.
    """
    layout = _recorded(path) or Layout("one", 1)
    threads.apply(layout._replace(devices=1))


def _recorded(path: str | Path) -> Layout | None:
    """The layout that a run was trained with; None where there is no such run."""
    from rlcli.runs import locate_run

    try:
        info: Mapping[str, Any] = locate_run(path).read_info().get("layout", {})
    except RlcliError:
        return None
    return threads.recorded(info)
