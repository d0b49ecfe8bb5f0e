"""Process group: what is different in a process that does not write the run."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcli.recipe import Recipe
from rlcli.xla.processes import ProcessGroup


def own_place(group: ProcessGroup, place: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where this process has its run folder: those of others are temporary."""
    if group.is_first:
        return place
    folder = tempfile.mkdtemp(prefix="rlcli-process-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {**place, "run": Path(folder) / "run"}


def own_recipe(group: ProcessGroup, load: Callable[[], Recipe]) -> Recipe:
    """The recipe as this process trains it: only the first one reports to trackers."""
    recipe = load()
    if group.is_first:
        return recipe
    train = dataclasses.replace(recipe.train, trackers=())
    return dataclasses.replace(recipe, train=train)


@contextlib.contextmanager
def keep_stdout(is_alone: bool) -> Iterator[None]:
    """Keeps stdout for data: the library that connects processes prints to it."""
    if is_alone:
        yield
        return
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)
