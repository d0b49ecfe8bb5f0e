"""Preview: what a study would train, before anything is trained.

Builds each program with shapes only. Imports JAX only when it runs.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote, shell_path
from rlcli.recipe import Recipe, load_to_train, seed_settings
from rlcli.registry.paths import enter, resolves
from rlcli.results.claim_test import count_groups
from rlcli.results.claims import plan_test
from rlcli.runs.listing import read_recipe
from rlcli.runs.listing import runs as list_runs
from rlcli.runs.study_record import Cell
from rlcli.studies.shared_programs import group_cells
from rlcli.studies.study_file import read_study
from rlcli.studies.study_grid import combine, plan_cells, read_cell


class CellPreview(NamedTuple):
    """A cell that would be trained."""

    cell: Cell
    program: int = 0  # its number; cells of one number are trained together
    seeds: int = 0
    steps: int = 0  # of each seed
    memory: int = 0  # bytes that its program needs at least
    seconds: float | None = None  # of its program, by the speed of earlier runs
    error: str = ""  # why it cannot be trained, and how to mend it
    plan: Mapping[str, Any] | None = None  # of the `test` of all, as in `plan_test`


@resolves("study", new=("runs",))
def preview_study(
    study: str | Path | Mapping[str, Any],
    *,
    vary: Sequence[str] = (),
    vary_zip: Sequence[str] = (),
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    runs: str | Path = "runs",
    trust: bool = True,
) -> list[CellPreview]:
    """What `study` would train; creates nothing.

    The time is that of training alone, by the median speed of the finished runs below
    `runs` with the same recipe and environment. None if there is no such run.
    """
    if isinstance(study, str | Path) and enter(study).is_dir():
        raise RlcliError(
            f"{quote(study)} is a folder: only a study that has not begun has a "
            "preview",
            f"`rlcli runs {shell_path(study)}` lists the runs of one that has",
        )
    grid = read_study(study, set, seed_settings(seed, seeds))
    grid = grid.vary([*combine(vary, vary_zip)])
    cells = plan_cells(grid, Path(runs) / "study")
    plan = None
    if grid.test is not None:
        plan = plan_test(grid.test, *count_groups(cells))
    groups, refused = group_cells(cells, trust=trust)
    programs, errors = build_groups(groups, trust=trust)
    rates = _read_rates(Path(runs))
    found = {}
    for number, (group, recipe, memory) in enumerate(programs, 1):
        seeds, steps = recipe.train.seeds, recipe.train.steps
        rate = rates.get((recipe.name, recipe.environment.name))
        seconds = None if rate is None else rate * steps * seeds * len(group)
        for cell in group:
            own = CellPreview(cell, number, seeds, steps, memory, seconds, plan=plan)
            found[cell.label] = own
    known = {cell.label: cell for cell in cells}
    for label, error in {**refused, **errors}.items():
        cell = known[label]
        found[label] = CellPreview(cell, error=str(error), plan=plan)
    return [found[cell.label] for cell in cells]


def build_groups(
    groups: Sequence[Sequence[Cell]], *, trust: bool, shapes: bool = True
) -> tuple[list[tuple[Sequence[Cell], Recipe, int]], dict[str, RlcliError]]:
    """Builds the program of each group; also why some cells cannot be built.

    Of each program: its cells, the recipe of the first one, and bytes of memory.
    `trust`: whether recipes may import code. `shapes`: whether the programs are traced,
    which tells their memory.
    """
    programs: list[tuple[Sequence[Cell], Recipe, int]] = []
    errors: dict[str, RlcliError] = {}
    for group in groups:
        try:
            recipes = [load_to_train(read_cell(cell), trust=trust) for cell in group]
            memory = _build_program(recipes, shapes)
        except RlcliError as error:
            errors |= {cell.label: error for cell in group}
        else:
            programs.append((group, recipes[0], memory))
    return programs, errors


def _build_program(recipes: Sequence[Recipe], shapes: bool) -> int:
    from rlcli.assembly import out_of_memory
    from rlcli.training.experiment.together import build_experiments

    train = recipes[0].train
    seeds = range(train.seed, train.seed + train.seeds)
    program = build_experiments(recipes, seeds, is_new=True)[0].program
    if not shapes:
        return 0
    program.check()
    return out_of_memory.total(program.memory)


def _read_rates(runs: Path) -> dict[tuple[str, str], float]:
    """Seconds per step of a seed in finished runs, by recipe and environment."""
    rates: dict[tuple[str, str], list[float]] = {}
    for record in list_runs(runs) if runs.is_dir() else ():
        rate = record["steps_per_second"]
        if record["status"] == "finished" and rate and not record["smoke"]:
            resolved = read_recipe(Path(record["run"]))
            name = str((resolved.get("environment") or {}).get("name"))
            rates.setdefault((str(record["recipe"]), name), []).append(1 / rate)
    return {key: statistics.median(each) for key, each in rates.items()}
