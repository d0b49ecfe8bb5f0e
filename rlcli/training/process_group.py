"""Process group: the processes of a run, of which only the first writes its files."""

import atexit
import dataclasses
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.recipe import Recipe
from rlcli.runs.files import name_file_in_errors
from rlcli.runs.locate import find_trained_together
from rlcli.runs.run_folder import Run
from rlcli.xla import processes
from rlcli.xla.processes import ProcessGroup

_NOT_COPIED = (".lock", "log.txt", "metrics.jsonl", "trackers*", "*.gif", "profile")


def local_place(group: ProcessGroup, place: Mapping[str, Any]) -> Mapping[str, Any]:
    """The place of this process's run folder: temporary except in the first process."""
    if group.is_first:
        return place
    return {**place, "run": _temporary_folder() / "run"}


def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="rlcli-process-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def local_run(group: ProcessGroup, run: Run) -> Run:
    """The run that this process resumes: others than the first have a copy of it.

    It is made before the processes connect, and the first one writes after that.
    """
    if group.count > 1 and len(find_trained_together(run)) > 1:
        raise RlcliError(
            f"`{run.folder}` was trained together with other runs, by one process",
            "resume it without `--coordinator`",
        )
    if group.is_first:
        return run
    with name_file_in_errors(run.folder, "copied"):
        folder = _temporary_folder() / run.folder.absolute().name
        ignored = shutil.ignore_patterns(*_NOT_COPIED)
        shutil.copytree(run.folder, folder, ignore=ignored, symlinks=True)
        copy = Run(folder)
        if copy.checkpoints.is_symlink():  # it may be relative
            copy.checkpoints.unlink()
            copy.checkpoints.symlink_to(run.checkpoints.resolve())
    return copy


def check_agreement(step: int) -> None:
    """Refuses to continue if the processes have read different checkpoints."""
    first = processes.of_first(step)
    if processes.any_process(step != first):
        raise RlcliError(
            "the processes have read different checkpoints: process 0 at step "
            f"{first:,}, this process at step {step:,}",
            "put the run on a file system that all processes share",
        )


def local_recipe(group: ProcessGroup, recipe: Recipe) -> Recipe:
    """The recipe as this process trains it: only the first one reports to trackers."""
    if group.is_first:
        return recipe
    train = dataclasses.replace(recipe.train, trackers=())
    return dataclasses.replace(recipe, train=train)
