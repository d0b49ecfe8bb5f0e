"""Train study: trains and continues studies; `rlcli study`, and `train` of several.

Cells that differ in numbers only are one program (`shared_programs`). If there are
several programs, each has a process, as many at once as cores.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli import errors
from rlcli.errors import RlcliError, quote
from rlcli.recipe import AnyRecipe
from rlcli.registry.paths import resolves
from rlcli.runs.durations import deadline_of
from rlcli.runs.naming import LONGEST_NAME, check_tags, name_or_time, number_folder
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.run_folder import Run, trust_option
from rlcli.runs.study_record import (
    Cell,
    Study,
    discard_cells,
    find_study,
    record_cells,
)
from rlcli.studies.preview import build_groups
from rlcli.studies.process_runs import (
    CellEnd,
    StudyReport,
    describe_end,
    refuse_cell,
    train_groups,
)
from rlcli.studies.shared_programs import group_cells, train_cells
from rlcli.studies.study_file import read_study
from rlcli.studies.study_grid import (
    Grid,
    combine,
    grid_of,
    plan_cells,
    seed_settings,
)
from rlcli.training.stopping.stops import stopping_with

GROUP = "studies"  # the folder of studies of several recipes, below that of runs


@resolves("study", new=("runs", "run"))
def study(
    study: str | Path | Mapping[str, Any],
    *,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    cells: Sequence[str] = (),
    jobs: int | None = None,
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

    None begins if some cells of a new study cannot be built: then these are returned.

    A study is recipes × environments × values of options, each with its seeds. Each
    cell is an ordinary run. Cells that differ only in numbers, such as the learning
    rate, are trained together in one program; others in processes of their own. A run
    that fails does not stop the others. A signal stops all of them, each with a
    checkpoint.

    Args:
        study: the YAML file of a study, or its data; or the folder of one that exists:
            cells that are not finished continue where they stopped, and those that have
            not begun begin.
        set: options that replace the recipes'; of a study that exists those that
            `resume` can change.
        seed: the first seed of each cell.
        seeds: the number of seeds of each cell.
        cells: of a study that exists, the names of the cells to train, by default all.
        jobs: processes at once; by default the number of cores. Where the system allows
            it, each of as many processes as cores has a core of its own.
        runs: the study is created as `<runs>/studies/<file>/<time>`.
        run: the folder of the study, instead of one below `runs`.
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
    if isinstance(study, str | Path) and Path(study).is_dir():
        given = {"seed": seed, "seeds": seeds, "run": run, "name": name, "tag": tag}
        _refuse_new_options(Path(study), {**given, "smoke": smoke})
        options = {"jobs": jobs, "max_time": max_time, "quiet": quiet}
        return continue_study(
            study, cells=cells, set=set, trust=trust, report=report, **options
        )
    if cells:
        raise RlcliError("`cells` are those of a study that exists: pass its folder")
    grid = read_study(study, set, seed_settings(seed, seeds))
    title = "study" if isinstance(study, Mapping) else Path(study).stem
    folder = _choose_folder(Path(runs) / GROUP / title, run, name)
    planned = plan_cells(
        grid, folder, name=name, tags=tuple(check_tags(tag)), is_smoke=smoke
    )
    return _train_new(
        planned,
        depth=0 if run is not None else 2,
        jobs=jobs,
        max_time=max_time,
        quiet=quiet,
        trust=trust is not False,
        report=report,
        is_strict=True,
    )


@resolves(recipes="recipes", new=("runs", "run"))
def train_all(
    recipes: Sequence[AnyRecipe],
    *,
    vary: Sequence[str] = (),
    vary_zip: Sequence[str] = (),
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    runs: str | Path = "runs",
    run: str | Path | None = None,
    name: str | None = None,
    tag: Sequence[str] = (),
    smoke: bool = False,
    trust: bool = True,
    **keywords: Any,
) -> list[CellEnd]:
    """Trains every combination of recipes and options, as a study; see `study`.

    Args:
        recipes: files, or names of built-in recipes.
        vary: options and their values, `KEY=VALUE,VALUE`; several are a grid.
        vary_zip: the same, but the first values of all belong together, and so on.
        runs: the study is created as `<runs>/<recipe>/<time>`, that of several recipes
            as `<runs>/studies/<recipes>/<time>`.
        run: the folder of the study, instead of one below `runs`; if there is a study,
            the cells are added to it.

    The other arguments are those of `study`.
    """
    grid = grid_of(
        recipes,
        combinations=[*combine(vary, vary_zip)],
        sets=tuple(set),
        overrides=tuple(seed_settings(seed, seeds)),
    )
    folder = _choose_folder(_place_of(grid, Path(runs)), run, name)
    planned = plan_cells(
        grid, folder, name=name, tags=tuple(check_tags(tag)), is_smoke=smoke
    )
    depth = 0 if run is not None else 1 if len(grid.recipes) == 1 else 2
    return _train_new(planned, depth=depth, trust=trust, **keywords)


def _place_of(grid: Grid, runs: Path) -> Path:
    """The folder with the studies of these recipes."""
    names = [*dict.fromkeys(recipe.name for recipe in grid.recipes)]
    if len(grid.recipes) == 1:
        return runs / names[0]
    return runs / GROUP / "+".join(names)[:LONGEST_NAME]


def _choose_folder(place: Path, run: str | Path | None, name: str | None) -> Path:
    """The folder of a new study; creates nothing."""
    if run is not None:
        return Path(run)
    return number_folder(place / name_or_time(name))


def _refuse_new_options(folder: Path, given: Mapping[str, Any]) -> None:
    """Refuses options of a new study for one that exists."""
    refused = [name for name, value in given.items() if value not in (None, (), False)]
    if refused:
        names = ", ".join(f"`{name}`" for name in refused)
        raise RlcliError(
            f"{quote(folder)} is the folder of a study, whose cells cannot change: "
            f"{names}",
            "leave them out, or name a file to begin another study",
        )


def _train_new(
    cells: Sequence[Cell], *, depth: int, trust: bool, **keywords: Any
) -> list[CellEnd]:
    """Records and trains new cells; removes the study if none of them can begin.

    `depth`: how many folders above that of the study were made for it.
    """
    max_time = deadline_of(keywords.pop("max_time", None))
    record_cells(cells)
    try:
        return train_recorded(cells, trust=trust, max_time=max_time, **keywords)
    finally:
        if not any(cell.exists for cell in cells):
            discard_cells(cells, with_parents=depth)


@resolves("folder")
def continue_study(
    folder: str | Path,
    *,
    cells: Sequence[str] = (),
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    trust: bool | None = None,
    **keywords: Any,
) -> list[CellEnd]:
    """Continues a study; the arguments are those of `study`."""
    max_time = deadline_of(max_time)
    found = find_study(folder)
    if found is None:
        if not Path(folder).is_dir():
            raise RlcliError(f"there is no folder {quote(folder)}")
        raise RlcliError(
            f"`{folder}` is not the folder of a study",
            "`rlcli.resume` continues a single run",
        )
    chosen = _select(found, cells)
    return train_recorded(chosen, set=set, trust=trust, max_time=max_time, **keywords)


def _select(study: Study, names: Sequence[str]) -> list[Cell]:
    """The cells of these names, by default all."""
    known = {cell.label: cell for cell in study.cells}
    for name in names:
        if name not in known:
            message = f"`{study.folder}` has no cell {quote(name)}"
            raise RlcliError(message, errors.suggest(name, known))
    return [known[name] for name in names] if names else [*study.cells]


def train_recorded(
    cells: Sequence[Cell],
    *,
    set: Sequence[str] = (),
    trust: bool | None,
    max_time: str | float | None,
    jobs: int | None = None,
    quiet: bool = False,
    report: StudyReport = lambda *_: None,
    is_strict: bool = False,
) -> list[CellEnd]:
    """Trains those of the cells that are not finished, and returns how all ended.

    `is_strict`: trains none if one of them cannot be built.
    """
    folder = cells[0].study
    variables = {**os.environ}  # before the threads of this process are set
    left = [cell for cell in cells if set or not _is_finished(cell)]
    ended = [describe_end(cell) for cell in cells if cell not in left]
    trusts_new = OpenedFolder.open(folder, trust).trust
    groups, refused = group_cells(left, trust=trusts_new)
    if is_strict and (refused or len(groups) > 1):  # one program is built in training
        _, misfits = build_groups(groups, trust=trusts_new, shapes=False)
        refused |= misfits
        groups = groups if not refused else []
    ended += [
        refuse_cell(cell, refused[cell.label]) for cell in left if cell.label in refused
    ]
    if not groups:
        return ended
    if len(groups) == 1:  # in this process, which shows its panel
        (group,) = groups

        def ends(*_: object) -> list[CellEnd]:
            return ended + [describe_end(cell) for cell in group]

        options = {"set": set, "max_time": max_time, "quiet": quiet, "trust": trust}
        try:
            with stopping_with(folder, ends):
                train_cells(group, **options)
            return ends()
        except RlcliError as error:
            if not _is_too_large(error, group):
                return ended + [refuse_cell(cell, error) for cell in group]
        groups = [[cell] for cell in group]
    words = ["--quiet", *trust_option(trust)]
    words += [word for text in set for word in ("--set", text)]
    keywords = {"jobs": jobs, "max_time": max_time, "variables": variables}
    return train_groups(groups, words, ended=ended, report=report, **keywords)


def _is_finished(cell: Cell) -> bool:
    return Run(cell.folder).read_info().get("status") == "finished"


def _is_too_large(error: RlcliError, cells: Sequence[Cell]) -> bool:
    """Whether cells were too large for one program, and none has begun."""
    from rlcli.assembly.out_of_memory import OutOfMemoryError  # here: imports JAX

    is_memory = isinstance(error, OutOfMemoryError) and len(cells) > 1
    return is_memory and not any(cell.exists for cell in cells)
