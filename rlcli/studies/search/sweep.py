"""Sweep: searches options of a recipe; the function behind `rlcli sweep`."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.recipe import Recipe, check_document, init_settings
from rlcli.registry.paths import enter, enter_url, resolves
from rlcli.runs import locks
from rlcli.runs.files import check_writable
from rlcli.runs.naming import place_folder
from rlcli.runs.study_record import Cell, refuse_options
from rlcli.studies.engines.engine_options import EngineOptions
from rlcli.studies.search import layout, pbt
from rlcli.studies.search.layout import PBT, Settings, Sweep, check_options, open_sweep
from rlcli.studies.search.objectives import AUC
from rlcli.studies.search.space import Space, check_space, load_space
from rlcli.studies.search.trial_source import Report, TrialSource
from rlcli.studies.search.trials import (
    Trials,
    fixed_values,
    open_database,
    require_optuna,
)
from rlcli.studies.study_grid import make_cell
from rlcli.studies.study_loop import CellSource
from rlcli.studies.train_study import train_recorded
from rlcli.training.stopping.stops import stopping_with

_OPTIONS = (*layout.BOUNDS, "sampler", "pruner", "objective")
_CHANGEABLE = ("trials", "confirm")  # when a sweep is resumed


@resolves("space", recipes="recipe", new=("runs", "run", "script"))
def sweep(
    recipe: str | Path,
    *,
    space: str | Path | Mapping[str, Any] | None = None,
    trials: int | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    sampler: str | None = None,
    pruner: str | None = None,
    objective: str | None = None,
    confirm: int | None = None,
    confirm_seeds: int | None = None,
    together: int | None = None,
    ready: int | None = None,
    set: Sequence[str] = (),
    init: str | Path | None = None,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    script: str | Path | None = None,
    max_time: str | float | None = None,
    storage: str | None = None,
    run_storage: str | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    resume: bool = False,
    trust: bool | None = None,
    report: Report = lambda progress: None,
) -> Path:
    """Searches options of a recipe with many trials, and returns the sweep's folder.

    A trial is a run with several seeds. Trials that differ in numbers only are trained
    together, as one program. The best trials are trained again with other seeds before
    a winner is named. A sweep that was stopped or killed continues with `resume`: no
    trial is lost or counted twice.

    Args:
        recipe: a file, or the name of a built-in recipe; with `resume` also the folder
            of a sweep.
        space: the options to search: a YAML file, or its data.
        trials: the number of trials, by default 50; of a grid, its combinations; of
            `pbt` the members of the population, by default 20.
        seeds: the seeds of each trial, by default 5.
        seed: the first of these seeds, from which the sampler is seeded as well; by
            default that of the recipe.
        sampler: `tpe`, `random`, `grid`, `cmaes`, `nsga2` or `pbt`, population-based
            training. A trial of `random` or `grid` depends on `seed` and its number
            only.
        pruner: `asha`, `median` or `none`: which trials end early.
        objective: `return`, `auc` or `steps_to:475`, the IQM over seeds.
        confirm: how many of the best trials are trained with other seeds, by default 3.
        confirm_seeds: the number of those seeds, by default that of a trial.
        together: how many trials are begun at once, to be trained together if they
            have the same structure; 1 trains each in a process of its own. By default
            the sampler and `jobs` decide.
        ready: of `pbt`, after how many evaluations the worst members copy the best
            ones, by default 1.
        set: options that replace the recipe's in every trial.
        init: a run, checkpoint or policy whose parameters every trial starts from.
        jobs: processes at once; by default the number of cores, of `pbt` 1.
        engine: `local`, `ray` or `slurm`; `address`, `cpus`, `gpus`, `run_storage` and
            `script` are their options, see `rlcli.study`. A task of an array trains one
            trial.
        max_time: seconds, or a duration such as `3h50m`, from the call.
        storage: the URL of a database for Optuna, instead of a journal file. Name it
            again with `resume`, as `run_storage`: a folder cannot choose an address.
        runs: the sweep is created as `<runs>/sweeps/<recipe>/<time>`.
        run: the folder of the sweep, instead of one below `runs`.
        name: the name of its folder, instead of the time.
        resume: continue a sweep: that of `run` or `name`, or the newest of the recipe.
        trust: with `resume`: allows the recipe of the sweep, which may come from
            elsewhere, to import code, and its trackers to contact a host. By default
            that of your own sweep may. A new sweep has the recipe that you name.
        report: is called with the `SweepProgress`, about once a second.
    """
    arguments = {**locals()}  # by their names
    given = {name: arguments[name] for name in _OPTIONS if arguments[name] is not None}
    sets = (*set, *init_settings(init))
    given |= {"set": sets} if sets else {}
    given |= {"storage": enter_url(storage)} if storage is not None else {}
    check_options(given)
    engines = EngineOptions.select(arguments)
    engines.check()
    limit = engines.limit(max_time)
    require_optuna()
    with contextlib.ExitStack() as stack:
        if resume:
            folder = enter(recipe)
            if folder.is_dir():
                refuse_options(folder, {"run": run, "name": name})
            else:
                title = check_document(recipe, sets).name
                folder = layout.find_sweep(title, runs, run, name)
            found = open_sweep(folder, trust=trust)
            stack.enter_context(locks.hold(folder))
            opened, first_rung = _reopen(found, given, space, engines)
        else:
            place = runs, run, name
            opened, first_rung = _create(recipe, given, space, place, engines)
            stack.enter_context(locks.hold(opened.folder))
        folder = opened.folder
        with stopping_with(folder, lambda _: folder):
            train_trials(opened, first_rung, engines, limit, report)
    return folder


def train_trials(
    sweep: Sweep,
    first_rung: int,
    engines: EngineOptions,
    max_time: float | None = None,
    report: Report = lambda progress: None,
) -> None:
    """Runs a sweep from where it stands to its end, or until a signal.

    `first_rung` is the step of the first evaluation.
    """
    # Processes elsewhere have another working directory.
    sweep = dataclasses.replace(sweep, folder=enter(sweep.folder))
    options = {"study": sweep.folder, "trust": sweep.trust, "max_time": max_time}
    if engines.is_array:
        source = CellSource(are_trials=True)
        train_recorded(_plan_trials(sweep), source=source, engine=engines, **options)
        return
    if sweep.settings.sampler == PBT:
        pbt.begin_population(sweep)
        if engines.engine == "local":
            engines = engines._replace(jobs=engines.jobs or 1)
    trials = TrialSource(sweep, Trials(sweep, first_rung))
    train_recorded(
        trials.list_begun(),
        source=trials.as_cells(),
        engine=engines,
        report=lambda *_: report(trials.describe_progress()),
        **options,
    )


def _refuse_array(sampler: str, engines: EngineOptions) -> None:
    """Refuses a job array with a sampler whose trials depend on others."""
    if engines.is_array and sampler not in layout.INDEPENDENT:
        raise RlcliError(
            f"a job array cannot have the sampler `{sampler}`, which chooses trials by "
            "the results of others",
            "pass `--sampler random` or `grid`, or use `--engine ray` on the cluster",
        )


def _plan_trials(sweep: Sweep) -> list[Cell]:
    """The cells of trials whose values depend on their numbers only."""
    cells = []
    for number in range(sweep.settings.trials):
        values = fixed_values(sweep, number)
        if values is not None:
            sets = sweep.space.settings(values)
            cells.append(sweep.make_cell(sweep.trial(number), sets))
    return cells


def _create(
    recipe: str | Path,
    given: Mapping[str, Any],
    space: str | Path | Mapping[str, Any] | None,
    place: tuple[str | Path, str | Path | None, str | None],
    engines: EngineOptions,
) -> tuple[Sweep, int]:
    """Creates a sweep; refuses a recipe, a space or options that are wrong.

    Also returns the step of the first evaluation, as `_reopen` does.
    """
    if layout.is_sweep(Path(recipe)):
        message = f"{quote(recipe)} is the folder of a sweep, not a recipe"
        raise RlcliError(message, "`--resume` continues it")
    _refuse_array(given.get("sampler", Settings.sampler), engines)
    if space is None:
        raise RlcliError(
            "a sweep needs a space of options to search", "pass a file with `--space`"
        )
    document = check_document(recipe, given.get("set", ()))
    document.refuse_combinations("search its options with `--space` instead")
    read = load_space(space)
    runs, run, name = place
    folder = place_folder(Path(runs) / layout.GROUP / document.name, run, name)
    check_writable(folder.parent, "choose another folder with `--runs` or `--run`")
    base, needs_trust = check_space(document, read)
    first_rung = _first_rung(base)
    embeds = engines.run_storage is not None
    cell = make_cell(document, embeds=embeds, folder=folder, study=folder)
    settings = _settings(given, cell, base, read, f"{document.name}/{folder.name}")
    sweep = Sweep(folder, needs_trust, settings=settings, space=read)
    if settings.sampler == PBT:
        pbt.check_population(sweep, base)
    if base.train.stop is not None and settings.objective == AUC:
        raise RlcliError(
            "the objective `auc` cannot have `train.stop`: a trial that stops early "
            "would have the mean of its worst part",
            "`--set train.stop=null`, or the objective `steps_to:RETURN`",
        )
    if settings.storage is not None:
        open_database(settings.storage)  # before there is a folder
    stored = engines.begin_storage(document.name, folder)
    layout.create_sweep(sweep, _plan_trials(sweep), **stored)
    return sweep, first_rung


def _settings(
    given: Mapping[str, Any], cell: Cell, base: Recipe, space: Space, study: str
) -> Settings:
    """The settings of a new sweep, with defaults."""
    seeds = given.get("seeds", Settings.seeds)
    chosen: dict[str, Any] = {"seed": base.train.seed, "confirm_seeds": seeds}
    if given.get("sampler") == PBT:
        chosen |= {"trials": layout.MEMBERS, "pruner": "none", "ready": 1}
    chosen |= given
    if given.get("sampler") == "grid":
        size = len(space.grid())
        chosen["trials"] = min(given.get("trials", size), size)
    if "storage" in given:  # where another study may have this name
        study = f"{study}/{secrets.token_hex(4)}"
    return Settings(recipe=cell.recipe, digest=cell.digest, study=study, **chosen)


def _first_rung(recipe: Recipe) -> int:
    """The step of the first evaluation."""
    every, steps = recipe.train.evaluate.every, recipe.train.steps
    if every is None or every > steps:
        raise RlcliError(
            "trials are compared by evaluations, but the recipe has none",
            f"add some: for example `--set train.evaluate.every={steps // 10 or 1}`",
        )
    return every


def _reopen(
    opened: Sweep,
    given: Mapping[str, Any],
    space: str | Path | Mapping[str, Any] | None,
    engines: EngineOptions,
) -> tuple[Sweep, int]:
    """Continues a sweep that exists; refuses other options than it was started with."""
    settings, read = opened.settings, opened.space
    before = dataclasses.asdict(settings)
    changeable = ("confirm",) if settings.sampler == PBT else _CHANGEABLE
    opened.check_address("--storage", settings.storage, given.get("storage"))
    for key, value in given.items():
        if key not in changeable and value != before[key]:
            raise RlcliError(
                f"`{opened.folder}` was started with `{key}` {_quote(before[key])}, "
                f"not {_quote(value)}",
                "leave the option out to continue with the same, or start a new sweep",
            )
    if space is not None and load_space(space).document.data != read.document.data:
        raise RlcliError(
            f"`{opened.folder}` was started with another space",
            "leave `--space` out to continue with the same, or start a new sweep",
        )
    base = opened.load_recipe()
    _refuse_array(settings.sampler, engines)
    engines.find_storage(opened.read_study())
    changes = {key: value for key, value in given.items() if key in changeable}
    settings = dataclasses.replace(settings, **changes)
    if settings.sampler == "grid":
        trials = min(settings.trials, len(read.grid()))
        settings = dataclasses.replace(settings, trials=trials)
    opened = dataclasses.replace(opened, settings=settings)
    opened.write_settings(_plan_trials(opened))
    return opened, _first_rung(base)


def _quote(value: Any) -> str:
    """The value of an option in a message; of `set` its settings."""
    return (
        quote(" ".join(value) or "none") if isinstance(value, tuple) else quote(value)
    )
