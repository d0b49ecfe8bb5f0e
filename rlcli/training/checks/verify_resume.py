"""Verify resume: whether a run that is stopped and resumed gives the same bytes.

Each run is trained up to a stop in a process of its own, which has no state in Python
that could hide what a checkpoint lacks.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.recipe import read_recipe
from rlcli.recipe.documents import copy_plain
from rlcli.registry.paths import directory, resolves
from rlcli.registry.user_code import module_command
from rlcli.runs.differences import differing_arrays, first_difference, last_step
from rlcli.runs.files import read_json, write_json
from rlcli.runs.locate import locate_run
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.training.new_run import NewRun, TrainRequest, check_single, train_chunks
from rlcli.training.resuming import resume_chunks
from rlcli.training.stopping import signals

FEW_UPDATES = 3
STOPS_HINT = "Ctrl-C ends the verification"
NOT_REPRODUCIBLE = (
    "two runs differ even without a stop. Usual causes: random numbers that do not "
    "come from the key or the seed of `reset`, the clock, or the order of a set"
)
HIDDEN_STATE = (
    "a resume creates new Python objects, and replays the actions of the current "
    "episode. Usual causes: state in Python objects that outlives an episode, such as "
    "a counter in an environment, random numbers that do not come from the key or the "
    "seed of `reset`, or the order of a set"
)
NOT_RESTORED = (
    "a resume begins new episodes in this environment. To be restored, an environment "
    "on the host must give the same observations for the same `reset(seed=…)` and "
    "actions, and must not be vectorized by its author or EnvPool"
)


@resolves(recipes="recipe")
def verify_resume(
    recipe: str | Path | Mapping[str, Any],
    *,
    set: Sequence[str] = (),
    seeds: int | None = None,
    steps: int | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Verifies that a run which is stopped and resumed gives the same bytes.

    Trains the recipe with a small budget, undisturbed. Then trains it again and stops
    it before the first update, after a few updates, after an evaluation and in the
    middle of an episode; each resume is a process of its own. All files are temporary.

    Returns `{"recipe", "step", "stops", "inexact", "metrics", "state", "after",
    "identical", "hint"}`: the last step, the stops as dicts of `step` and `place`, what
    the resumes could not restore, the first difference of `metrics.jsonl`, the
    differing arrays of the last checkpoints, the stop before the first difference (None
    if that precedes all stops), whether all bits are equal and everything was restored,
    and what usually causes the difference ("" if there is none).

    Args:
        recipe: a file, the name of a built-in recipe, or the data of a recipe.
        set: options that replace the recipe's.
        seeds: the number of seeds.
        steps: of the run; by default at least 512 steps and 12 updates.
        quiet: prints only warnings and errors.
    """
    sets = [*set] + ([] if seeds is None else [f"train.seeds={seeds}"])
    name = check_single(recipe, sets).name
    source = recipe if isinstance(recipe, Mapping) else str(recipe)
    with (
        tempfile.TemporaryDirectory(prefix="rlcli-") as folder,
        Monitor(title=name, quiet=quiet, hint=STOPS_HINT) as monitor,
    ):
        whole, stopped = (Run(Path(folder, each)) for each in ("whole", "stopped"))
        monitor.set_phase("training without a stop")
        run_in_process(Task(str(whole.folder), source, sets, steps))
        end = _end_of(whole)
        monitor.message(f"trained without a stop: {end:,} steps")
        stops = plan_stops(read_metrics(whole.folder))
        task = Task(str(stopped.folder), source, sets, steps)
        for stop in stops:
            monitor.set_phase(f"training up to step {stop['step']:,}")
            run_in_process(task._replace(stop=stop["step"]))
            monitor.message(f"stopped at step {stop['step']:,}: {stop['place']}")
            task = task._replace(resumes=True)
        monitor.set_phase("training up to the end")
        run_in_process(task)
        return {"recipe": name, "step": end} | _compare(whole, stopped, stops, end)


def plan_stops(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where to stop a run with these metrics: dicts of `step` and `place`."""
    rows = [row for row in rows if row["seed"] == rows[0]["seed"]]
    evaluated = [row["T"] for row in rows if "evaluation" in row]
    logged = [row for row in rows if "evaluation" not in row]
    end = logged[-1]["T"]
    before = [row["T"] for row in logged if not row.get("updates")]
    after = [row["T"] for row in logged if row.get("updates", 0) >= FEW_UPDATES]
    within = [
        row["T"]
        for previous, row, following in zip(
            logged, logged[1:], logged[2:], strict=False
        )
        if previous.get("ep") == row.get("ep") == following.get("ep")
    ]
    late = sorted(
        (row["T"] for row in logged), key=lambda step: abs(4 * step - 3 * end)
    )
    places = {
        "before the first update": before[-1:],
        "after a few updates": after[:1],
        "after an evaluation": evaluated[:1],
        "in the middle of an episode": [step for step in late if step in within][:1],
        "after three quarters of the steps": late[:1],
    }
    stops: dict[int, str] = {}
    for place, found in places.items():
        for step in found:
            if 0 < step < end and step not in stops:
                stops[step] = place
    return [{"step": step, "place": stops[step]} for step in sorted(stops)]


def _end_of(run: Run) -> int:
    """The last step of the undisturbed run; refuses one that has failed."""
    info = run.read_info()
    if info["status"] != "finished":
        raise RlcliError(
            f"the run without a stop has failed: {info['reason']}", info["hint"]
        )
    return last_step(run)


def _compare(
    whole: Run, stopped: Run, stops: Sequence[dict[str, Any]], end: int
) -> dict[str, Any]:
    """Whether the runs are equal; else where they first differ, and the cause."""
    metrics = first_difference(whole, stopped, end)
    state = differing_arrays(whole, stopped, end)
    messages = [each["inexact"] for each in stopped.read_info().get("resumes", [])]
    inexact = [message for message in messages if message]
    differs = metrics is not None or state != []
    step = metrics["step"] if metrics else end
    earlier = [stop for stop in stops if stop["step"] < step] if differs else []
    hint = ""
    if differs and not earlier:
        hint = NOT_REPRODUCIBLE
    elif inexact:
        hint = NOT_RESTORED
    elif differs:
        hint = HIDDEN_STATE
    return {
        "stops": [*stops],
        "inexact": inexact,
        "metrics": metrics,
        "state": state,
        "after": earlier[-1] if earlier else None,
        "identical": not differs and not inexact,
        "hint": hint,
    }


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
    """Trains or resumes, and trusts the recipe: it is one that the user has named."""
    keywords: dict[str, Any] = {"trust": True, "quiet": True}
    keywords["ends_at_log_points"] = task.stop is not None
    if task.resumes:
        chunks = resume_chunks(locate_run(task.run), **keywords)
    else:
        new = NewRun(read_recipe(task.recipe, task.sets), {"run": task.run})
        request = TrainRequest(is_short=True, steps=task.steps, **keywords)
        chunks = train_chunks([new], request)
    for chunk in chunks:
        if task.stop is not None and chunk.step >= task.stop:
            chunks.close()


if __name__ == "__main__":
    sys.exit(main())
