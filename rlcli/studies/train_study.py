"""Train study: trains and continues studies; `rlcli study`, and `train` of several.

Cells that differ in numbers only are one program (`shared_programs`). If there are
several programs, each has a process, as many at once as cores.
"""

import contextlib
import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli import errors
from rlcli.errors import RlcliError, quote, shell_path
from rlcli.recipe import AnyRecipe, seed_settings
from rlcli.registry.paths import enter, resolves
from rlcli.runs.naming import LONGEST_NAME, check_tags, place_folder
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.records import COMPLETE
from rlcli.runs.run_folder import Run, trust_option
from rlcli.runs.study_record import (
    REFERENCE,
    SEARCH,
    Cell,
    Study,
    discard_cells,
    find_study,
    record_study,
    refuse_options,
)
from rlcli.studies.engines.engine_options import STORAGE, EngineOptions
from rlcli.studies.engines.jobs import ENDED, Job
from rlcli.studies.engines.slurm import write_script
from rlcli.studies.preview import build_groups
from rlcli.studies.seed_blocks import block_source, refuse_changes
from rlcli.studies.shared_programs import group_cells, is_population, train_cells
from rlcli.studies.study_file import read_study
from rlcli.studies.study_grid import Grid, combine, grid_of, plan_cells
from rlcli.studies.study_loop import (
    NOTHING_MORE,
    CellEnd,
    CellSource,
    StudyLoop,
    StudyReport,
    announce,
    describe_end,
    exit_code,
    refuse_cell,
)
from rlcli.training.stopping.signals import deliver
from rlcli.training.stopping.stops import STATUS_OF_SIGNALS, Stop, stopping_with

GROUP = "studies"  # the folder of studies of several recipes, below that of runs
# A file, its data, recipes, or the folder of a study that exists.
AnyStudy = str | Path | Mapping[str, Any] | Sequence[AnyRecipe]


@resolves(recipes="study", new=("runs", "run", "script"))
def study(
    study: AnyStudy,
    *,
    vary: Sequence[str] = (),
    vary_zip: Sequence[str] = (),
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    cell: Sequence[str] = (),
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    run_storage: str | None = None,
    script: str | Path | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    tag: Sequence[str] = (),
    max_time: str | float | None = None,
    smoke: bool = False,
    quiet: bool = False,
    trust: bool | None = None,
    report: StudyReport = lambda *_: None,
) -> list[CellEnd]:
    """Trains every cell of a study, or continues it; returns how each ended.

    A study is recipes × environments × values of options, each with its seeds. Each
    cell is an ordinary run. Cells that differ only in numbers, such as the learning
    rate, are trained together in one program; others in processes of their own. A run
    that fails does not stop the others. A signal stops all of them, each with a
    checkpoint. Of a new study from a file, no cell begins if some cannot be built: then
    these are returned.

    Args:
        study: the YAML file of a study, or its data; a list of recipes; or the folder
            of a study that exists: cells that are not finished continue where they
            stopped, and those that have not begun begin.
        vary: options and their values, `KEY=VALUE,VALUE`; several are a grid.
        vary_zip: the same, but the first values of all belong together, and so on.
        set: options that replace the recipes'; of a study that exists those that
            `resume` can change.
        seed: the first seed of each cell.
        seeds: the number of seeds of each cell.
        cell: of a study that exists, the names of the cells to train, by default all.
        jobs: processes at once; by default the number of cores. Where the system allows
            it, each of as many processes as cores has a core of its own.
        engine: `local`, or `ray`: the processes run on the nodes of a Ray cluster,
            which share the study's folder unless there is a `run_storage`. `slurm`
            writes the script of a SLURM job array and trains nothing: a task trains the
            cells of one program, for at most `max_time`, and `jobs` tasks run at once.
            Then the cells are returned as if they had ended.
        address: the cluster, `auto` or `ray://HOST:PORT`; by default one on this
            machine.
        cpus: CPUs of each process, with Ray or SLURM.
        gpus: GPUs of each process, with Ray or SLURM.
        run_storage: with Ray, the URL of an object store such as `s3://bucket/runs`:
            nodes that share no folder keep their runs there, and this process copies
            them into the study's folder. Name it again for a study that exists.
        script: the file of that script, by default `slurm/array.sh` in the study's
            folder.
        runs: the study is created as `<runs>/studies/<file>/<time>`; that of one recipe
            as `<runs>/<recipe>/<time>`.
        run: the folder of the study, instead of one below `runs`; if there is one, the
            cells are added to it.
        name: the name of that folder, instead of the time, and of the runs.
        tag: tags of the runs.
        max_time: seconds, or a duration such as `3h50m`, from the call, for
            all cells: those that have not begun by then are not trained.
        smoke: trains each cell with a tiny budget.
        quiet: prints only warnings and errors of runs that are trained in this process.
        trust: whether recipes may import code, and have trackers that contact a host.
            By default those of a file that you name may, and of a folder your own.
        report: is called with the cells and those that have ended, about once a second.
    """
    engines = EngineOptions.select(locals())
    engines.check()
    options = {"engine": engines, "max_time": engines.limit(max_time)}
    options |= {"quiet": quiet, "report": report}
    if isinstance(study, str | Path) and (folder := enter(study)).is_dir():
        given = {"vary": vary, "vary_zip": vary_zip, "seed": seed, "seeds": seeds}
        given |= {"run": run, "name": name, "tag": tag, "smoke": smoke}
        chosen = _select(folder, cell, given)
        refuse_changes(folder, set)
        if cell:  # by another process, which has the others
            return train_recorded(chosen, set=set, trust=trust, **options)
        options |= {"source": block_source(folder)}
        with announce(folder):
            return train_recorded(chosen, set=set, trust=trust, **options)
    if cell:
        raise RlcliError("`cell` is for those of a study that exists: pass its folder")
    overrides, combinations = seed_settings(seed, seeds), [*combine(vary, vary_zip)]
    if is_listed := not isinstance(study, str | Path | Mapping):
        grid = grid_of(study, sets=tuple(set), overrides=tuple(overrides))
        place = _place_of(grid, Path(runs))
    else:
        grid = read_study(study, set, overrides)
        title = "study" if isinstance(study, Mapping) else Path(study).stem
        place = Path(runs) / GROUP / title
    grid = grid.vary(combinations)
    folder = place_folder(place, run, name)
    own = {"name": name, "tags": tuple(check_tags(tag)), "is_smoke": smoke}
    planned = plan_cells(grid, folder, embeds=run_storage is not None, **own)
    return _train_new(
        planned,
        grid.sections,
        title=place.name,
        depth=len(place.relative_to(runs).parts) if run is None else 0,
        trust=trust is not False,
        is_strict=not is_listed,
        **options,
    )


def _place_of(grid: Grid, runs: Path) -> Path:
    """The folder with the studies of these recipes."""
    names = [*dict.fromkeys(recipe.name for recipe in grid.recipes)]
    if len(grid.recipes) == 1:
        return runs / names[0]
    return runs / GROUP / "+".join(names)[:LONGEST_NAME]


def _select(folder: Path, names: Sequence[str], given: Mapping[str, Any]) -> list[Cell]:
    """The cells of a study that exists, by default all; refuses options of a new one.

    `given` are the options that its user has passed.
    """
    study = find_study(folder)
    if study is None:
        raise RlcliError(
            f"{quote(folder)} is not the folder of a study",
            "`rlcli resume` continues a single run",
        )
    refuse_options(folder, given)
    if SEARCH in study.sections and not names:
        raise RlcliError(
            f"{quote(folder)} is the folder of a sweep",
            f"`rlcli sweep {shell_path(folder)} --resume` continues it",
        )
    known = {cell.label: cell for cell in study.cells}
    for name in names:
        if name not in known:
            message = f"`{study.folder}` has no cell {quote(name)}"
            raise RlcliError(message, errors.suggest(name, known))
    return [known[name] for name in names] if names else [*study.cells]


def _train_new(
    cells: Sequence[Cell],
    sections: Mapping[str, Any],
    *,
    title: str,
    depth: int,
    trust: bool,
    engine: EngineOptions,
    **keywords: Any,
) -> list[CellEnd]:
    """Records and trains new cells; removes the study if none of them can begin.

    `title` names the study in a store. `depth`: how many folders above that of the
    study were made for it.
    """
    folder = cells[0].study
    found = find_study(folder)
    if found is not None and found.sections.keys() - {STORAGE, REFERENCE}:
        raise RlcliError(
            f"{quote(folder)} is the folder of a sweep or a test, which chooses its "
            "own runs",
            "choose another folder with `--run`",
        )
    sections = {**sections, **engine.begin_storage(title, folder)}
    if found is not None and REFERENCE in sections:  # its own cells keep theirs
        known = found.sections.get(REFERENCE)
        known = known if isinstance(known, Mapping) else {}  # it may be damaged
        sections[REFERENCE] = {**known, **sections[REFERENCE]}
    record_study(folder, cells, sign=trust, **sections)
    may_begin = engine.run_storage is not None  # the store may have runs
    try:
        keywords |= {"source": block_source(folder), "trust": trust}
        with announce(folder):
            ended = train_recorded(cells, engine=engine, **keywords)
        may_begin = engine.is_array and exit_code(ended) == errors.OK
        return ended
    finally:
        if not may_begin and not any(cell.exists for cell in cells):
            before = {} if found is None else found.sections
            discard_cells(cells, sections, before, with_parents=depth)


def train_recorded(
    cells: Sequence[Cell],
    *,
    study: Path | None = None,
    source: CellSource = NOTHING_MORE,
    engine: EngineOptions,
    set: Sequence[str] = (),
    trust: bool | None,
    max_time: float | None,
    quiet: bool = False,
    report: StudyReport = lambda *_: None,
    is_strict: bool = False,
) -> list[CellEnd]:
    """Trains those of the cells that have not ended, and returns how all ended.

    `study` is the folder of the study, by default that of the cells. `source` chooses
    others, once these have ended; a script for SLURM has those that are next.
    `is_strict`: trains none if one of `cells` cannot be built.
    """
    folder = cells[0].study if study is None else study
    record = find_study(folder) or Study(folder, (*cells,))
    variables = {**os.environ}  # before the threads of this process are set
    statuses = () if set else ENDED if source.are_trials else COMPLETE
    labels = [cell.label for cell in _divide(cells, statuses)[1]]
    opening = engine.open(record, labels, environment=variables)
    with contextlib.closing(opening) as opened:
        ended, left = _divide(cells, statuses)  # with those of a store
        if engine.is_array:  # the cells of the next script
            failed, _ = _divide(left, ENDED)
            left += source.choose([*ended, *failed])
        trusts_new = OpenedFolder(folder, trust).admits_code
        groups = [[cell] for cell in left] if engine.is_array else []
        refused: dict[str, RlcliError] = {}
        if not source.are_trials:
            is_local = engine.engine == "local"
            groups, refused = _group(left, trusts_new, is_strict, is_local)
        is_here = len(groups) == 1 and engine.engine == "local"
        known = (cell for cell in left if cell.label in refused)
        ended += [refuse_cell(cell, refused[cell.label]) for cell in known]
        words = [*trust_option(trust)]
        words += [word for text in set for word in ("--set", text)]
        if engine.is_array and not refused:
            tasks = [[cell.label for cell in group] for group in groups]
            write_script(folder, tasks, words, engine, max_time)
            ended += [CellEnd(cell, errors.OK, "") for cell in left]
        if engine.is_array or (is_strict and refused):
            return ended
        if is_here:
            options = {"set": set, "max_time": max_time, "quiet": quiet, "trust": trust}
            ended, groups = _train_here(groups[0], ended, options)
        loop = StudyLoop(
            record,
            source,
            opened,
            words,
            trust=trusts_new,
            ended=ended,
            max_time=max_time,
            report=report,
        )
        status = loop.run(groups)
        if status in STATUS_OF_SIGNALS.values():
            verb = "sweep --resume" if source.are_trials else "resume"
            command = f"rlcli {verb} {shell_path(folder)}"
            text = f"the runs in `{folder}` were stopped; `{command}` continues them"
            deliver(Stop(folder, lambda: loop.ended, lambda: text), status)
        return loop.ended


def _group(
    cells: Sequence[Cell], trust: bool, is_strict: bool, is_local: bool
) -> tuple[list[list[Cell]], dict[str, RlcliError]]:
    """Groups cells by programs; also why some, or if `is_strict` all, are refused."""
    groups, refused = group_cells(cells, trust=trust)
    is_here = len(groups) == 1 and is_local  # then training builds it
    if is_strict and (refused or not is_here):
        _, misfits = build_groups(groups, trust=trust, shapes=False)
        refused |= misfits
    return groups, refused


def _divide(
    cells: Sequence[Cell], statuses: Container[str]
) -> tuple[list[CellEnd], list[Cell]]:
    """The cells with these statuses, which have ended, and those that are left."""
    ended: list[CellEnd] = []
    left: list[Cell] = []
    for cell in cells:
        if str(Run(cell.folder).read_info().get("status")) in statuses:
            ended.append(describe_end(cell))
        else:
            left.append(cell)
    return ended, left


def _train_here(
    cells: Sequence[Cell], ended: Sequence[CellEnd], options: Mapping[str, Any]
) -> tuple[list[CellEnd], list[list[Cell]]]:
    """Trains cells of one program in this process, which shows its panel.

    Returns how all cells have ended. If the program is refused, for example because it
    is too large, before any run has begun, also returns the cells one by one, and if
    another process has begun them meanwhile, all of them, which then wait for it.
    """

    def ends(*_: object) -> list[CellEnd]:
        return [*ended, *map(describe_end, cells)]

    had_begun = any(cell.exists for cell in cells)
    job = Job(cells[0].study, tuple(cell.label for cell in cells))
    try:
        with stopping_with(cells[0].study, ends):
            train_cells(cells, **options)
        return ends(), []
    except RlcliError as error:
        if not had_begun and job.is_busy:  # another process began them at the same time
            return [*ended], [[*cells]]
        has_begun = any(cell.exists for cell in cells)
        if len(cells) > 1 and not has_begun and not is_population(cells):
            return [*ended], [[cell] for cell in cells]
        return [*ended, *(refuse_cell(cell, error) for cell in cells)], []
