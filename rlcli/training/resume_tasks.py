"""Resume tasks: train or resume a run in a process of its own.

`rlcli verify-resume` performs them, with a small budget, up to a given step. A process
of its own has no state in Python that could hide what a checkpoint lacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.recipe import read_recipe
from rlcli.recipe.documents import copy_plain
from rlcli.registry.paths import directory
from rlcli.registry.user_code import module_command
from rlcli.runs.files import read_json, write_json
from rlcli.runs.locate import locate_run
from rlcli.training import signals
from rlcli.training.new_run import NewRun, TrainRequest, train_chunks
from rlcli.training.resuming import resume_chunks
from rlcli.training.run_loop import Chunk


class Task(NamedTuple):
    """A task for a process: train or resume a run, up to a step."""

    run: str  # its folder
    recipe: str | Mapping[str, Any]
    sets: Sequence[str]
    steps: int | None  # of the whole run; None for the least that shows a fault
    resumes: bool = False
    stop: int | None = None  # the step; None for the end of the run


def run_in_process(task: Task) -> None:
    """Performs a task in a process of its own; raises its error."""
    is_data = isinstance(task.recipe, Mapping)
    recipe = copy_plain(task.recipe) if is_data else task.recipe
    plain = json.dumps({"task": task._replace(recipe=recipe), "path": sys.path})
    with tempfile.TemporaryDirectory(prefix="rlcli-task-") as folder:
        answer = Path(folder, "error.json")  # not stdout, to which environments print
        process = subprocess.run(
            [*module_command(__name__), str(answer)],
            input=plain,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, signals.PARENT: str(os.getpid())},
            cwd=directory() or None,
            check=False,
        )
        error = read_json(answer)
    if process.returncode == 0:
        return
    if not error:  # a crash
        lines = process.stderr.strip().splitlines() or ["no message"]
        raise RlcliError(
            f"the training process ended with exit code {process.returncode}: "
            f"{lines[-1]}",
            "`rlcli train RECIPE --smoke` prints the whole message",
        )
    raise RlcliError(error["message"], error["hint"], code=error["code"])


def main() -> int:
    """Performs the task on stdin; writes its error as JSON to the file that it gets."""
    content = json.load(sys.stdin)
    sys.path[:] = content["path"]
    try:
        with signals.own_process():
            _perform(Task(*content["task"]))
    except RlcliError as error:
        fields = {"message": error.message, "hint": error.hint, "code": error.code}
        write_json(Path(sys.argv[1]), fields)
        return error.code
    return 0


def _perform(task: Task) -> None:
    chunks = _resume(task) if task.resumes else _train(task)
    for chunk in chunks:
        if task.stop is not None and chunk.step >= task.stop:
            chunks.close()


def _resume(task: Task) -> Generator[Chunk, None, None]:
    # The code in the run is that of the recipe, which the user has named.
    return resume_chunks(
        locate_run(task.run),
        quiet=True,
        trust=True,
        ends_at_log_points=task.stop is not None,
    )


def _train(task: Task) -> Generator[Chunk, None, Path]:
    return train_chunks(
        TrainRequest(
            runs=[NewRun(read_recipe(task.recipe, task.sets), {"run": task.run})],
            trust=True,  # the recipe that the user has named, as in `train`
            ends_at_log_points=task.stop is not None,
            quiet=True,
            is_short=True,
            steps=task.steps,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
