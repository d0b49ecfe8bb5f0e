"""Shared programs: the cells of a study that are trained together, in this process.

Imports JAX only where options that are numbers vary: cells that differ in nothing else
are one program.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Any

from rlcli.errors import RlcliError
from rlcli.runs import population_rounds, thread_layout
from rlcli.runs.files import exists
from rlcli.runs.locate import find_trained_together
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.run_folder import Run, is_run
from rlcli.runs.study_record import Cell
from rlcli.studies.study_grid import read_cell
from rlcli.training.new_run import NewRun, train_together
from rlcli.training.resuming import resume

_POLL = 0.05  # seconds between two looks at runs that another process creates


def group_cells(
    cells: Sequence[Cell], *, trust: bool
) -> tuple[list[list[Cell]], dict[str, RlcliError]]:
    """Groups cells by what one process trains; also why some cannot be trained.

    `trust`: whether recipes of cells that have not begun may import code.
    """
    for cell in cells:
        while cell.exists and _is_half_begun(run := Run(cell.folder)):
            if run.is_abandoned():
                run.discard()
            else:
                time.sleep(_POLL)
    groups, refused = _group_begun([cell for cell in cells if cell.exists])
    new = [cell for cell in cells if not cell.exists]
    for _, alike in itertools.groupby(new, lambda cell: (cell.recipe, _names(cell))):
        groups += _group_new([*alike], trust, refused)
    places = {cell.label: place for place, cell in enumerate(cells)}
    return sorted(groups, key=lambda group: places[group[0].label]), refused


def _is_half_begun(run: Run) -> bool:
    """Whether not all runs of a program are there: they are created before it begins.

    Its process was killed, or still creates them.
    """
    info = run.read_info()
    names = info.get("members", ())
    is_new = info.get("status") == "created" and not run.list_checkpoints()
    is_missing = not all(is_run(run.folder.parent / name) for name in names)
    return is_new and is_missing


def _names(cell: Cell) -> tuple[str | None, ...]:
    return cell.values.get("recipe"), cell.values.get("environment")


def _group_begun(
    cells: Sequence[Cell],
) -> tuple[list[list[Cell]], dict[str, RlcliError]]:
    """Groups cells that have begun: by the runs that were trained together."""
    groups: list[list[Cell]] = []
    refused: dict[str, RlcliError] = {}
    by_folder = {cell.folder: cell for cell in cells}
    while by_folder:
        folder, cell = next(iter(by_folder.items()))
        try:
            members = [run.folder for run in find_trained_together(Run(folder))]
        except RlcliError as error:
            refused[cell.label] = error
            members = [folder]
        else:
            groups.append([by_folder[each] for each in members if each in by_folder])
        for each in members:
            by_folder.pop(each, None)
    return groups, refused


def _group_new(
    cells: Sequence[Cell], trust: bool, refused: dict[str, RlcliError]
) -> list[list[Cell]]:
    """Groups cells of a recipe on an environment that have not begun."""
    varied = {pair for cell in cells for pair in cell.values.items()}
    numbers = [key for key, value in varied if _is_number(value)]
    if len(numbers) == len({*numbers}):  # none varies: they cannot differ in it only
        return [[cell] for cell in cells]
    documents = []
    for cell in cells:
        try:
            documents.append((cell, read_cell(cell)))
        except RlcliError as error:
            refused[cell.label] = error
    if not documents:
        return []
    # For a program of all cells, before JAX is imported.
    thread_layout.apply_for_recipe(documents[0][1], runs=len(documents))
    from rlcli.recipe import load_to_train
    from rlcli.training.experiment.together import group_recipes

    loaded = []
    for cell, document in documents:
        try:
            loaded.append((cell, load_to_train(document, trust=trust)))
        except RlcliError as error:
            refused[cell.label] = error
    indices = group_recipes([recipe for _, recipe in loaded])
    return [[loaded[index][0] for index in group] for group in indices]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_population(cells: Sequence[Cell]) -> bool:
    """Whether cells are the members of a population, which is one program."""
    return exists(cells[0].folder.with_name(population_rounds.FILE_NAME))


def train_cells(
    cells: Sequence[Cell],
    *,
    set: Sequence[str] = (),
    max_time: str | float | None = None,
    quiet: bool = False,
    trust: bool | None = None,
) -> None:
    """Trains cells of `group_cells` in this process: begins or continues them.

    The arguments are those of `resume`.
    """
    begun = next((cell for cell in cells if cell.exists), None)
    options: dict[str, Any] = {"max_time": max_time, "quiet": quiet}
    if begun is not None:  # whose group continues with it
        resume(begun.folder, set=set, trust=trust, **options)
        return
    fields = {"population": True} if is_population(cells) else {}
    new = [
        NewRun(
            read_cell(cell, set),
            {
                "run": cell.folder,
                "name": cell.name,
                "tags": [*cell.tags],
                "cell": {"label": cell.label, "values": dict(cell.values)},
                **fields,
            },
        )
        for cell in cells
    ]
    study = OpenedFolder(cells[0].study, trust)
    train_together(new, trust=study.admits_code, smoke=cells[0].is_smoke, **options)
