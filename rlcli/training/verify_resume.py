"""Verify resume: whether a run that is stopped and resumed gives the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.registry.paths import resolves
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.training.new_run import check_single
from rlcli.training.resume_tasks import Task, run_in_process
from rlcli.training.run_differences import (
    differing_arrays,
    first_difference,
    last_step,
)

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
