"""bsuite: trains a recipe on bsuite's ids; the function behind `rlcli bsuite`."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli import errors
from rlcli.errors import RlcliError, quote, shell_path
from rlcli.recipe import RecipeDocument, check_document, read_without_parts
from rlcli.recipe.settings import Setting
from rlcli.registry.paths import enter, resolves
from rlcli.results import figure
from rlcli.runs.cell_table import group_reasons
from rlcli.runs.creation import check_place
from rlcli.runs.files import name_file_in_errors, to_json
from rlcli.runs.naming import place_folder
from rlcli.runs.study_record import FILE_NAME, Cell, refuse_options
from rlcli.studies.bsuite.experiments import EXPERIMENTS, MNIST, IdGroup, select_ids
from rlcli.studies.bsuite.results import score_sweep
from rlcli.studies.bsuite.suite_files import RUNS, Suite, find_suite
from rlcli.studies.engines.engine_options import EngineOptions
from rlcli.studies.study_grid import make_cell
from rlcli.studies.study_loop import CellEnd, StudyReport, announce
from rlcli.studies.train_study import train_recorded
from rlcli.training.stopping.stops import stopping_with

GROUP = "bsuite"  # the folder of these sweeps, below the folder of runs
_ROWS = 1_000  # of metrics in a run


@resolves(recipes="recipe", new=("mnist", "runs", "run", "script"))
def bsuite(
    recipe: str | Path,
    ids: Sequence[str] = (),
    *,
    set: Sequence[str] = (),
    seed: int | None = None,
    mnist: str | Path | None = None,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    run_storage: str | None = None,
    script: str | Path | None = None,
    runs: str | Path | None = None,
    run: str | Path | None = None,
    name: str | None = None,
    max_time: str | float | None = None,
    smoke: bool = False,
    resume: bool = False,
    trust: bool | None = None,
    report: StudyReport = lambda *_: None,
) -> dict[str, Any]:
    """Trains a recipe on the experiments of bsuite, and scores it as bsuite does.

    Returns the scores of experiments and tags, from 0 to 1, which the folder also has
    as tables and a radar plot, with the results of each id as CSV files of bsuite.
    Given the folder of a sweep instead of a recipe, its runs are scored again, with
    `resume` after those that have not finished are trained.

    Args:
        recipe: a file, the name of a built-in recipe, or the folder of a sweep. The
            environment and the number of steps are those of bsuite, `num_envs` that
            of the recipe.
        ids: ids such as `catch_noise/3`, experiments such as `catch_noise`, or tags
            such as `noise`. By default all.
        set: options that replace the recipe's.
        seed: the first seed, by default 0. Ids with equal settings have consecutive
            seeds.
        mnist: the folder with the MNIST training set; without it, experiments with
            MNIST are left out.
        jobs: runs at once; by default the number of cores.
        engine: `local`, `ray` or `slurm`; `address`, `cpus`, `gpus`, `run_storage` and
            `script` are their options, see `rlcli.study`.
        runs: the sweep is created as `<runs>/bsuite/<recipe>/<time>`; by default below
            `runs`.
        run: the folder of the sweep, instead of one below `runs`.
        name: the name of its folder, instead of the time.
        max_time: seconds, or a duration such as `3h50m`, from the call.
        smoke: trains each run with a tiny budget.
        resume: continues the sweep in the folder `recipe`, with its own options.
        trust: with `resume`: allows the recipe of the sweep, which may come from
            elsewhere, to import code, and its trackers to contact a host. By default
            that of your own sweep may. A new sweep has the recipe that you name.
        report: is called with the cells and those that have ended, about once a second.
    """
    engines = EngineOptions.select(locals())
    engines.check()
    limit = engines.limit(max_time)
    figure.check_library()  # before any work
    opened = find_suite(enter(recipe), trust)
    read: RecipeDocument | None = None
    if resume or opened is not None:
        given = {"ids": ids, "set": set, "seed": seed, "mnist": mnist, "runs": runs}
        given |= {"run": run, "name": name, "smoke": smoke or None}
        if opened is None:
            raise RlcliError(
                f"{quote(enter(recipe))} is not the folder of a sweep of bsuite",
                "`--resume` takes the folder that `rlcli bsuite` has printed",
            )
        refuse_options(opened.folder, given)
        suite = opened
        if not resume:
            return score_sweep(suite, [])
    else:
        read = check_document(recipe, set)
        read.refuse_combinations("`rlcli bsuite` scores one agent")
        title = read.name
        chosen, notes = _leave_out_mnist(select_ids(ids), ids, mnist)
        place = Path(runs or enter("runs")) / GROUP / title
        place = place_folder(place, run, name)
        _refuse_existing(place)
        info = {
            "recipe": title,
            "set": [*set],
            "seed": seed or 0,
            "mnist": None if mnist is None else str(mnist),
            "smoke": smoke,
            "chosen": [f"{name}/{index}" for name, index in chosen],
            "notes": notes,
        }
        suite = Suite(place, trust=True, info=info)  # it has what its user has named

    def score(ended: Sequence[CellEnd]) -> dict[str, Any]:
        return score_sweep(suite, _describe_failures(ended))

    with stopping_with(suite.folder, score):
        ended = _train(read, suite, engines, limit, report)
    return score(ended)


def _train(
    recipe: RecipeDocument | None,
    suite: Suite,
    engine: EngineOptions,
    max_time: float | None,
    report: StudyReport,
) -> list[CellEnd]:
    """Trains the runs that have not finished; `recipe` is that of a new sweep."""
    if recipe is not None:
        embeds = engine.run_storage is not None
        cells = [_plan_cell(recipe, each, suite, embeds) for each in suite.groups]
        with name_file_in_errors(suite.folder, "created"):
            suite.folder.mkdir(parents=True, exist_ok=True)
        stored = engine.begin_storage(suite.info["recipe"], suite.folder)
        suite.write(cells, **stored)
    with announce(suite.folder):
        return train_recorded(
            suite.read_study().cells,
            engine=engine,
            trust=suite.trust,
            max_time=max_time,
            report=report,
        )


def _describe_failures(ended: Sequence[CellEnd]) -> list[str]:
    return group_reasons(
        (each.cell.folder.name, each.message or f"exit code {each.code}")
        for each in ended
        if each.code != errors.OK
    )


def _leave_out_mnist(
    chosen: list[tuple[str, int]], words: Sequence[str], path: str | Path | None
) -> tuple[list[tuple[str, int]], list[str]]:
    """The ids that can be trained, and a note on the others."""
    needs = {name for name, _ in chosen if EXPERIMENTS[name].environment is MNIST}
    if path is not None or not needs:
        return chosen, []
    hint = "give the folder of the MNIST training set: `--mnist FOLDER`"
    if any(word.partition("/")[0] in needs for word in words):
        raise RlcliError("experiments with MNIST need its images", hint)
    rest = [each for each in chosen if each[0] not in needs]
    return rest, [f"left out: {', '.join(sorted(needs))}; {hint}"]


def _refuse_existing(folder: Path) -> None:
    """Refuses a folder that already contains a sweep."""
    if any(os.path.lexists(folder / each) for each in (FILE_NAME, RUNS)):
        raise RlcliError(
            f"`{folder}` contains a sweep already",
            "choose another folder; "
            f"`rlcli bsuite {shell_path(folder)} --resume` continues it",
        )
    check_place(run=folder / RUNS / "run")


def _plan_cell(
    recipe: RecipeDocument, group: IdGroup, suite: Suite, embeds: bool
) -> Cell:
    """The run of ids: the recipe with the environment and the budget of bsuite.

    Refuses a recipe or options that are wrong.
    """
    experiment, index = EXPERIMENTS[group.experiment], group.indices[0]
    data = read_without_parts(recipe).data.get("environment")
    num_envs = data.get("num_envs", 1) if isinstance(data, Mapping) else 1
    num_envs = num_envs if isinstance(num_envs, int) and num_envs > 0 else 1
    options = {**experiment.options(index), "num_envs": num_envs}
    if experiment.environment is MNIST:
        options["path"] = suite.info["mnist"]
    # Rounds of episodes side by side.
    rounds = math.ceil(experiment.environment.episodes / num_envs)
    size = experiment.max_length(index) * num_envs  # steps of a round
    period = math.ceil(rounds / _ROWS)  # of the rows of metrics
    rounds = math.ceil(rounds / period) * period  # the last row is at the end
    own = {
        "environment": to_json(options),
        "train.steps": rounds * size,
        "train.log.every": period * size,
        "train.seed": suite.info["seed"] + group.seed,
        "train.seeds": len(group.indices),
        "train.evaluate": "{every: null}",
        "train.checkpoint.every": "null",
        "train.stop": "null",
    }
    place = suite.run(group)
    origin = f"run `{place.name}` of bsuite"
    settings = [Setting(f"{key}={value}", origin) for key, value in own.items()]
    return make_cell(
        check_document(recipe.with_settings(*settings)),
        embeds=embeds,
        folder=place,
        study=suite.folder,
        values={"id": place.name},
        is_smoke=bool(suite.info["smoke"]),
    )
