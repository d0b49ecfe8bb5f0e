"""Sweep: searches options of a recipe; the function behind `rlcli sweep`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.quoting import quote_shell
from rlcli.recipe import (
    Recipe,
    check_document,
    dump_recipe,
    locate_recipe,
    read_recipe,
    resolve,
)
from rlcli.registry.libraries import require_extra
from rlcli.registry.paths import enter, enter_url, resolves
from rlcli.results.checks import check_choice
from rlcli.runs.durations import parse_duration
from rlcli.runs.files import replace_file
from rlcli.studies.engines.jobs import Engine, LocalEngine
from rlcli.studies.engines.run_storage import RunStorage, open_storage
from rlcli.studies.engines.slurm import check_script, check_settings, write_script
from rlcli.studies.engines.storage_engine import StorageEngine
from rlcli.studies.search import grouping, layout, pbt
from rlcli.studies.search.driver import Driver, Report
from rlcli.studies.search.layout import Settings, SweepFolder
from rlcli.studies.search.objectives import AUC
from rlcli.studies.search.opening import OpenedSweep, check_options, open_sweep
from rlcli.studies.search.pbt import PBT
from rlcli.studies.search.space import Space, load_space
from rlcli.studies.search.trials import Trials, open_database, require_optuna
from rlcli.studies.search.validation import check_space
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS, Stop
from rlcli.xla.threads import usable_cores

DEFAULTS: Mapping[str, Any] = {
    "trials": 50,
    "seeds": 5,
    "sampler": "tpe",
    "pruner": "asha",
    "objective": "return",
    "confirm": 3,
}
ENGINES = ("local", "ray")
_CHANGEABLE = ("trials", "confirm")  # when a sweep is resumed
_ADDRESSES = ("storage", "run_storage")  # which its user names each time


@resolves("space", recipes="recipe", new=("runs", "run", "slurm"))
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
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    max_time: str | float | None = None,
    storage: str | None = None,
    run_storage: str | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    resume: bool = False,
    trust: bool | None = None,
    slurm: str | Path | None = None,
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
        jobs: processes at once; by default the number of cores, of `pbt` 1.
        engine: `local`, or `ray`: the processes run on the nodes of a Ray cluster,
            which share the sweep's folder unless there is a `run_storage`.
        address: the cluster, `auto` or `ray://HOST:PORT`; by default one on this
            machine.
        cpus: CPUs of each process, with Ray.
        gpus: GPUs of each process, with Ray.
        max_time: seconds, or a duration such as `3h50m`, from the call.
        storage: the URL of a database for Optuna, instead of a journal file. Name it
            again with `resume`, as `run_storage`: a folder cannot choose an address.
        run_storage: with Ray, the URL of an object store such as `s3://bucket/runs`:
            nodes that share no folder keep their runs there, and this process copies
            them into the sweep's folder.
        runs: the sweep is created as `<runs>/sweeps/<recipe>/<time>`.
        run: the folder of the sweep, instead of one below `runs`.
        name: the name of its folder, instead of the time.
        resume: continue a sweep: that of `run` or `name`, or the newest of the recipe.
        trust: with `resume`: allows the recipe of the sweep, which may come from
            elsewhere, to import code, and its trackers to contact a host. A new sweep
            has the recipe that you name.
        slurm: write the script of a SLURM job array to this file and train nothing; a
            task trains one trial, for at most `max_time`.
        report: is called with the `SweepProgress`, about once a second.
    """
    begin = time.monotonic()
    deadline = math.inf if max_time is None else begin + parse_duration(max_time)
    given = {
        "trials": trials,
        "seeds": seeds,
        "seed": seed,
        "sampler": sampler,
        "pruner": pruner,
        "objective": objective,
        "confirm": confirm,
        "confirm_seeds": confirm_seeds,
        "together": together,
        "ready": ready,
        "set": tuple(set) or None,
        "storage": None if storage is None else enter_url(storage),
        "run_storage": run_storage,
    }
    given = {key: value for key, value in given.items() if value is not None}
    check_options(given)
    make_engine = _engine_maker(engine, jobs, address, cpus, gpus)
    if slurm is not None:
        check_script(slurm)
    with contextlib.ExitStack() as stack:
        if resume:
            require_optuna()
            found = open_sweep(_find(recipe, set, runs, run, name), trust=trust)
            stack.enter_context(found.folder.lock())
            opened, first_rung = _reopen(found, given, space, engine)
        else:
            place = runs, run, name
            _check_run_storage(run_storage, engine)
            opened, first_rung = _create(
                recipe, given, space, place, is_array=slurm is not None
            )
            stack.enter_context(opened.folder.lock())
        if slurm is not None:
            write_script(opened.folder, opened.settings, slurm, max_time=max_time)
        else:
            status = _run(opened, first_rung, make_engine, deadline, report)
            if status in STATUS_OF_SIGNALS.values():
                _stop(opened.folder.folder, status)
    return opened.folder.folder


def _stop(folder: Path, status: str) -> None:
    """Tells the caller that a signal has stopped a sweep."""
    text = f"`rlcli sweep {quote_shell(folder)} --resume` continues the sweep"
    Stop(folder, lambda: folder, lambda: text).deliver(status)


def _create(
    recipe: str | Path,
    given: Mapping[str, Any],
    space: str | Path | Mapping[str, Any] | None,
    place: tuple[str | Path, str | Path | None, str | None],
    *,
    is_array: bool,
) -> tuple[OpenedSweep, int]:
    """Creates a sweep; refuses a recipe, a space or options that are wrong.

    Also returns the step of the first evaluation, as `_reopen` does.
    """
    if layout.is_sweep(Path(recipe)):
        message = f"{quote(recipe)} is the folder of a sweep, not a recipe"
        raise RlcliError(message, "`--resume` continues it")
    if space is None:
        raise RlcliError(
            "a sweep needs a space of options to search", "pass a file with `--space`"
        )
    sets = given.get("set", ())
    document = check_document(recipe, sets)
    document.refuse_combinations("search its options with `--space` instead")
    title = document.name
    read = load_space(space)
    folder = layout.choose_folder(title, *place)
    require_optuna()
    base, needs_trust = check_space(document, read)
    first_rung = _first_rung(base)
    settings = _settings(given, recipe, base, read, f"{title}/{folder.name}")
    if settings.sampler == PBT:
        pbt.check_population(SweepFolder(folder, needs_trust), base, settings, read)
    _check_stop(base, settings)
    if settings.storage is not None:
        open_database(settings.storage)  # before there is a folder
    if is_array:
        check_settings(settings)
    if settings.run_storage is not None:
        _open_run_storage(SweepFolder(folder), settings).check(is_new=True)
    text = dump_recipe(resolve(base))
    sweep = layout.create_sweep(folder, settings, read, text, trust=needs_trust)
    return OpenedSweep(sweep, settings, read), first_rung


def _check_stop(recipe: Recipe, settings: Settings) -> None:
    """Refuses to compare areas under curves of different lengths."""
    if recipe.train.stop is not None and settings.objective == AUC:
        raise RlcliError(
            "the objective `auc` cannot have `train.stop`: a trial that stops early "
            "would have the mean of its worst part",
            "`--set train.stop=null`, or the objective `steps_to:RETURN`",
        )


def _run(
    opened: OpenedSweep,
    first_rung: int,
    make_engine: _EngineMaker,
    deadline: float,
    report: Report,
) -> str:
    """Trains the trials; returns the status with which the sweep ends."""
    folder, settings, space = opened
    # Processes elsewhere have another working directory.
    place = SweepFolder(enter(folder.folder), folder.trust)
    study = Trials(place, settings, space, first_rung)
    is_population = settings.sampler == PBT
    if is_population:
        pbt.begin_population(place, settings, space)
    storage = None
    if settings.run_storage is not None:
        storage = _open_run_storage(place, settings)
    engine: Engine = make_engine(1 if is_population else None, storage)
    try:
        if settings.together is None:
            size = grouping.choose_size(settings, engine.jobs)
            settings = dataclasses.replace(settings, together=size)
            place.write_settings(settings)
        if storage is not None:
            settings = _copy_recipe(place, settings)
            engine = StorageEngine(engine, storage)
            trials = [each for each in study.trials() if each.state == "running"]
            folders = [place.trial(each.number) for each in trials]
            engine.restore([*folders, *place.confirmations.glob("*")])
        driver = Driver(
            place, settings, space, study, engine, deadline=deadline, report=report
        )
        return driver.run()
    finally:
        engine.close()


def _check_run_storage(url: str | None, engine: str) -> None:
    """Refuses a storage of runs with an engine that has none."""
    if url is not None and engine != "ray":
        raise RlcliError(
            f"`--run-storage` is an option of `--engine ray`, not of `{engine}`",
            "pass `--engine ray`; without `--address` it runs on this machine",
        )


def _open_run_storage(sweep: SweepFolder, settings: Settings) -> RunStorage:
    assert settings.run_storage is not None
    return open_storage(settings.run_storage, settings.study, sweep.folder)


def _copy_recipe(sweep: SweepFolder, settings: Settings) -> Settings:
    """The settings with a copy of the recipe, which other nodes can have as well."""
    path = Path(settings.recipe)
    if not path.is_absolute():  # a built-in recipe
        return settings
    text = read_recipe(path).merge().text
    sweep.make(layout.SOURCE)
    replace_file(sweep.source(path), text.encode())
    return dataclasses.replace(settings, recipe=str(sweep.source(path)))


_EngineMaker = Callable[[int | None, RunStorage | None], Engine]


def _engine_maker(
    engine: str, jobs: int | None, address: str | None, cpus: float, gpus: float
) -> _EngineMaker:
    """A function that makes the engine; refuses one that cannot be.

    Its arguments are the number of processes on this machine, by default that of cores,
    and the storage of the runs.
    """
    check_choice("engine", engine, ENGINES)
    if engine == "local":
        if address is not None or gpus or cpus != 1:
            raise RlcliError(
                "`address`, `cpus` and `gpus` are options of `--engine ray`",
                "`--jobs` is the number of processes of `--engine local`",
            )
        return lambda default, storage: LocalEngine(jobs or default or usable_cores())
    if cpus < 0 or gpus < 0 or cpus + gpus == 0:
        raise RlcliError(f"a process cannot have {cpus:g} CPUs and {gpus:g} GPUs")
    require_extra("ray", "`--engine ray`")
    from rlcli.studies.engines.ray_engine import RayEngine

    return lambda default, storage: RayEngine(
        jobs, address=address, cpus=cpus, gpus=gpus, storage=storage
    )


def _settings(
    given: Mapping[str, Any], recipe: str | Path, base: Recipe, space: Space, study: str
) -> Settings:
    """The settings of a new sweep, with defaults."""
    chosen: dict[str, Any] = {**DEFAULTS, "seed": base.train.seed, "set": ()}
    chosen |= {"storage": None, "run_storage": None, "together": None, "ready": None}
    if given.get("sampler") == PBT:
        chosen |= {"trials": pbt.MEMBERS, "pruner": "none", "ready": 1}
    chosen |= given
    if chosen["sampler"] == "grid":
        size = len(space.grid())
        chosen["trials"] = min(given.get("trials", size), size)
    if chosen["storage"] is not None:  # where another study may have this name
        study = f"{study}/{secrets.token_hex(4)}"
    chosen.setdefault("confirm_seeds", chosen["seeds"])
    return Settings(recipe=locate_recipe(recipe), study=study, **chosen)


def _first_rung(recipe: Recipe) -> int:
    """The step of the first evaluation."""
    every, steps = recipe.train.evaluate.every, recipe.train.steps
    if every is None or every > steps:
        raise RlcliError(
            "trials are compared by evaluations, but the recipe has none",
            f"add some: for example `--set train.evaluate.every={steps // 10 or 1}`",
        )
    return every


def _find(
    recipe: str | Path,
    sets: Sequence[str],
    runs: str | Path,
    run: str | Path | None,
    name: str | None,
) -> Path:
    """The folder of the sweep to resume, by itself or by its recipe."""
    if (folder := enter(recipe)).is_dir():
        return folder
    return layout.find_sweep(check_document(recipe, sets).name, runs, run, name)


def _reopen(
    opened: OpenedSweep,
    given: Mapping[str, Any],
    space: str | Path | Mapping[str, Any] | None,
    engine: str,
) -> tuple[OpenedSweep, int]:
    """Continues a sweep that exists; refuses other options than it was started with."""
    folder, settings, read = opened
    before = dataclasses.asdict(settings)
    changeable = ("confirm",) if settings.sampler == PBT else _CHANGEABLE
    for name in _ADDRESSES:
        option = f"--{name.replace('_', '-')}"
        folder.check_address(option, before[name], given.get(name))
    for key, value in given.items():
        if key not in changeable and value != before[key]:
            raise RlcliError(
                f"`{folder.folder}` was started with `{key}` {quote(before[key])}, not "
                f"{quote(value)}",
                "leave the option out to continue with the same, or start a new sweep",
            )
    if space is not None and load_space(space).document.data != read.document.data:
        raise RlcliError(
            f"`{folder.folder}` was started with another space",
            "leave `--space` out to continue with the same, or start a new sweep",
        )
    base = folder.load_recipe_with(settings)
    if dump_recipe(resolve(base)) != folder.read_recipe():
        raise RlcliError(
            f"the recipe has changed since `{folder.folder}` was started",
            f"`{folder.recipe}` has the original options",
        )
    changes = {key: value for key, value in given.items() if key in changeable}
    settings = dataclasses.replace(settings, **changes)
    if settings.sampler == "grid":
        trials = min(settings.trials, len(read.grid()))
        settings = dataclasses.replace(settings, trials=trials)
    _check_run_storage(settings.run_storage, engine)
    if settings.run_storage is not None:
        _open_run_storage(folder, settings).check(is_new=False)
    folder.write_settings(settings)
    return OpenedSweep(folder, settings, read), _first_rung(base)
