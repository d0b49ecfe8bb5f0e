"""Grouping: trials of equal structure, which are trained together as one program.

A process gets the runs that it trains in a file, `jobs/0007.json`, which is named after
the first of them.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli import errors
from rlcli.errors import RlcliError
from rlcli.recipe import read_recipe
from rlcli.runs.files import read_json, write_json
from rlcli.runs.run_folder import Run, is_run
from rlcli.studies.engines.jobs import Job
from rlcli.studies.search import layout
from rlcli.studies.search.layout import Settings, SweepFolder
from rlcli.studies.search.pbt import PBT
from rlcli.training.new_run import NewRun, train_together

_MOST = 64  # trials of a group, if the sampler does not learn from others
_MOST_LEARNED = 16  # if it does
_REMEDY = "`rlcli sweep FOLDER --resume` writes it again"
_STEPS = 8  # how often each process asks such a sampler, at least


def choose_size(settings: Settings, jobs: int) -> int:
    """The number of trials that are begun at once, for so many processes.

    All processes get trials. A sampler that learns from trials chooses few at once,
    because it does not know their results yet. A population is one program.
    """
    if settings.sampler == PBT:
        return settings.trials
    if settings.has_independent_trials:
        return min(math.ceil(settings.trials / jobs), _MOST)
    return min(math.ceil(settings.trials / (_STEPS * jobs)), _MOST_LEARNED)


def group_trials(
    sweep: SweepFolder, settings: Settings, sets: Sequence[Sequence[str]]
) -> list[list[int]]:
    """The indices of trials with these options that have the same program.

    A trial whose recipe is refused is alone: its own process explains the error.
    """
    if len(sets) <= 1:
        return [[index] for index in range(len(sets))]
    from rlcli.training.experiment.together import group_recipes

    loaded, alone = [], []
    for index, each in enumerate(sets):
        try:
            recipe = sweep.load_recipe_with(settings, each)
        except RlcliError:
            alone.append([index])
            continue
        loaded.append((index, recipe))
    groups = group_recipes([recipe for _, recipe in loaded])
    return sorted([[loaded[i][0] for i in group] for group in groups] + alone)


def make_job(
    sweep: SweepFolder, settings: Settings, trials: Sequence[tuple[int, Sequence[str]]]
) -> Job:
    """The job of trials that have the same program: their numbers and options.

    A trial alone is trained by `rlcli train`, as by hand. The process of a group reads
    the numbers and options of its trials in a file of the sweep's folder, which may
    have a copy elsewhere.
    """
    folders = tuple(sweep.trial(number) for number, _ in trials)
    first, last = trials[0][0], trials[-1][0]
    if len(trials) == 1:
        arguments = layout.trial_arguments(
            sweep, settings, folders[0], trials[0][1], settings.seed, settings.seeds
        )
        return Job(f"trial {first}", folders, arguments, sweep.trust)
    train = f"train.seed={settings.seed}", f"train.seeds={settings.seeds}"
    sweep.make(layout.JOBS)
    fields = {
        "trials": [
            {"trial": number, "set": [*settings.set, *sets, *train]}
            for number, sets in trials
        ],
        "population": settings.sampler == PBT,
    }
    file = sweep.job(first)
    write_json(file, fields)
    arguments = ["sweep", *sweep.resume_options, "--", "train", str(file)]
    arguments.append(settings.recipe)
    return Job(f"trials {first} to {last}", folders, arguments, sweep.trust)


def train_group(file: str | Path, recipe: str, *, trust: bool | None = None) -> int:
    """Trains the trials of a file of `make_job`; the exit code of the first."""
    path = Path(file).absolute()
    content = read_json(path, _REMEDY)
    if not content:
        raise RlcliError(f"there is no file `{file}`")
    if not _is_job(content):
        raise RlcliError(f"`{file}` is damaged: it lists no trials", _REMEDY)
    sweep = SweepFolder.open(path.parents[1], trust)
    variants = [(each["set"], sweep.trial(each["trial"])) for each in content["trials"]]
    for _, folder in variants:
        if is_run(folder):  # of a process that was killed before it had created all
            Run(folder).discard()
    read = read_recipe(recipe)
    fields = {"population": True} if content["population"] else {}
    runs = [
        NewRun(read.with_settings(*sets), {"run": place, **fields})
        for sets, place in variants
    ]
    train_together(runs, quiet=True, trust=sweep.trust)
    status = Run(variants[0][1]).read_info()["status"]
    return errors.EXIT_CODES[status]


def _is_job(content: Mapping[str, Any]) -> bool:
    """Whether the content of a file is that of `make_job`."""
    trials = content.get("trials")
    return (
        isinstance(trials, list)
        and len(trials) > 0
        and all(isinstance(each, dict) for each in trials)
        and all(type(each.get("trial")) is int for each in trials)
        and all(isinstance(each.get("set"), list) for each in trials)
        and all(isinstance(text, str) for each in trials for text in each["set"])
        and isinstance(content.get("population"), bool)
    )
