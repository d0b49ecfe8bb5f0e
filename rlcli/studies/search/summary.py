"""Summary: the results of a sweep, as plain data; behind `rlcli sweep show`."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.registry.paths import enter_url
from rlcli.runs import locks
from rlcli.runs.formatting import format_number
from rlcli.runs.population_rounds import Stage
from rlcli.studies.search.layout import PBT, REMEDY_OF_RESULT, Sweep, open_sweep
from rlcli.studies.search.objectives import Objective, parse_objective
from rlcli.studies.search.pbt import read_lineages
from rlcli.studies.search.space import Option
from rlcli.studies.search.trials import Trial, Trials, rank

_SLICES = 4  # parts of the range of a number
_MOST_VALUES = 8  # whole numbers that have a slice each
_ENOUGH = 10  # complete trials, from which options are compared without a warning


def show_sweep(folder: str | Path, *, storage: str | None = None) -> dict[str, Any]:
    """Describes a sweep, which may still run: what `rlcli sweep show --json` prints.

    `trials` are all trials by their numbers, `best` is the best of them, `confirmed`
    are the best ones trained with other seeds, and `winner` is the best of these.
    `importance` says how much of the variation between good trials each option
    explains; `slices` has the trials of each part of an option's range. The options of
    the members of a population are their last ones, and `lineage` has all. `warnings`
    say what the results do not show.

    Writes nothing. `storage` is the database of a sweep that was started with one.
    """
    sweep = open_sweep(folder)
    settings, recipe = sweep.settings, sweep.settings.recipe
    given = None if storage is None else enter_url(storage)
    sweep.check_address("--storage", settings.storage, given)
    study = Trials(sweep, is_reader=True)
    objective = parse_objective(settings.objective)
    trials = study.trials()
    best = rank(trials, objective)
    result = sweep.read_result()
    winner, confirmed = result.get("winner"), result.get("confirmed", [])
    for each in (*filter(None, [winner]), *confirmed):
        if each["trial"] >= len(trials):
            message = f"`{sweep.result}` is damaged: there is no trial {each['trial']}"
            raise RlcliError(message, REMEDY_OF_RESULT)
    lineages: Mapping[int, Sequence[Stage]] = {}
    if settings.sampler == PBT:
        lineages = read_lineages(sweep)
    described = {
        trial.number: _describe(sweep, trial, lineages.get(trial.number, ()))
        for trial in trials
    }
    counts = Counter(trial.state for trial in trials)
    return {
        "folder": str(folder),
        "recipe": recipe if isinstance(recipe, str) else recipe["name"],
        "objective": settings.objective,
        "direction": "maximize" if objective.is_maximized else "minimize",
        "sampler": settings.sampler,
        "pruner": settings.pruner,
        "seeds": settings.seeds,
        "status": find_sweep_status(sweep),
        "total": settings.trials,
        "counts": dict(counts),
        "warnings": _warn_of_few(counts["complete"], settings.trials),
        "best": described[best[0].number] if best else None,
        "winner": winner,
        "confirmed": confirmed,
        "importance": study.importance(),
        "slices": [
            {"option": option.key, "values": slice_trials(option, trials, objective)}
            for option in (sweep.space.options if settings.sampler != PBT else ())
        ],
        "trials": [*described.values()],
    }


def _warn_of_few(complete: int, total: int) -> list[str]:
    """A warning if options are compared by few of the trials, as after much pruning."""
    if not 0 < complete < min(_ENOUGH, math.ceil(total / 2)):
        return []
    verb = "is" if complete == 1 else "are"
    return [
        f"{complete} of {total} trials {verb} complete: too few to rank the options"
    ]


def find_sweep_status(sweep: Sweep) -> str:
    """The status of a sweep; `killed` if it has not ended but has no process."""
    status = sweep.read_result().get("status", "running")
    if status == "running" and locks.is_free(sweep.folder):
        return "killed"
    return status


def _describe(sweep: Sweep, trial: Trial, stages: Sequence[Stage]) -> dict[str, Any]:
    lineage = [
        {"step": each.step, "trial": int(each.member), "options": {**each.options}}
        for each in stages
    ]
    return {
        "trial": trial.number,
        "state": trial.state,
        "value": trial.value,
        "ci95": trial.notes.get("ci95"),
        "seeds": trial.notes.get("seeds"),
        "options": lineage[-1]["options"] if lineage else trial.values,
        "run": str(sweep.trial(trial.number)),
        "pruned_at": trial.notes.get("pruned_at"),
        "rungs": {str(step): value for step, value in sorted(trial.rungs.items())},
        "reason": trial.notes.get("reason", ""),
        **({"lineage": lineage} if lineage else {}),
    }


def slice_trials(
    option: Option, trials: Sequence[Trial], objective: Objective
) -> list[dict[str, Any]]:
    """The complete trials of each choice, or of each part of the range of a number."""
    pairs = [
        (trial.values[option.key], trial.value)
        for trial in trials
        if trial.state == "complete"
        and trial.value is not None
        and option.key in trial.values
    ]
    best = max if objective.is_maximized else min
    return [
        {
            "label": label,
            "trials": len(values),
            "best": best(values, default=None),
            "median": statistics.median(values) if values else None,
        }
        for label, values in _split(option, pairs)
    ]


def _split(
    option: Option, pairs: Sequence[tuple[Any, float]]
) -> list[tuple[str, list[float]]]:
    """The objectives of trials by the label of their slice."""
    single: Sequence[Any] = option.choices  # values that have a slice each
    if option.kind == "int" and option.count <= _MOST_VALUES:
        single = range(int(option.low), int(option.high) + 1, option.step)
    if single:
        return [
            (str(each), [value for chosen, value in pairs if chosen == each])
            for each in single
        ]
    edges = option.spread(_SLICES + 1)
    slices = []
    for index, (low, high) in enumerate(itertools.pairwise(edges)):
        is_last = index == _SLICES - 1
        values = [
            value
            for chosen, value in pairs
            if low <= chosen and (chosen < high or is_last)
        ]
        slices.append((f"{format_number(low)} … {format_number(high)}", values))
    return slices
