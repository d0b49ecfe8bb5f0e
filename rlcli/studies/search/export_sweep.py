"""Export: the recipe of the winner of a sweep; behind `rlcli sweep export`."""

import os
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, shell_path
from rlcli.recipe import dump_recipe, resolve
from rlcli.recipe.documents import format_inline
from rlcli.runs.files import check_output, write_output
from rlcli.runs.formatting import format_number
from rlcli.runs.run_folder import Run
from rlcli.studies.search.layout import PBT, TRIALS, Sweep, open_sweep
from rlcli.studies.search.pbt import member_settings


def export_sweep(
    folder: str | Path,
    output: str | Path,
    *,
    trial: int | None = None,
    trust: bool | None = None,
) -> Path:
    """Writes the recipe of the winner, and returns its file.

    It is a complete recipe, with the seeds of the winner's run: `rlcli train` with it
    makes the same run, to the byte where the machine is the same. (Up to rounding if
    the run was trained together with others.) Numbers that a population has changed
    during training are schedules.

    Args:
        folder: the folder of a sweep.
        output: a `.yaml` file.
        trial: the number of a trial, instead of the winner.
        trust: allows the recipe of a population to import code.
    """
    check_output(Path(output), "a recipe", (".yaml", ".yml"))
    sweep = open_sweep(folder, trust=trust)
    shown = shell_path(folder)
    if trial is None:
        run, title = _winner(sweep)
        missing = f"`{run.folder}`, the run of the winner, is missing"
        hint = f"`rlcli sweep {shown} --resume` trains it again"
    else:
        run, title = Run(sweep.trial(trial)), f"Trial {trial}"
        missing = f"`{folder}` has no trial {trial}"
        hint = f"`rlcli sweep show {shown}` lists the trials"
    is_member = sweep.settings.sampler == PBT and run.folder.parent.name == TRIALS
    is_there = os.path.lexists(run.resolved_recipe)
    if not is_there and not (is_member and trial is None):
        raise RlcliError(missing, hint)
    if is_member:
        # The recipe with schedules that trains the member alone.
        sets = member_settings(sweep, int(run.folder.name))
        text = dump_recipe(resolve(sweep.load_recipe(sets)))
    else:
        text = run.read_resolved()
    name = format_inline(sweep.folder.absolute().name)
    comment = f"# {title} of the sweep {name}\n"
    write_output(Path(output), (comment + text).encode())
    return Path(output)


def _winner(sweep: Sweep) -> tuple[Run, str]:
    winner: dict[str, Any] | None = sweep.read_result().get("winner")
    if winner is None:
        raise RlcliError(
            f"`{sweep.folder}` has no winner yet",
            "`--resume` continues the sweep; `--trial N` exports a trial",
        )
    sentence = f"Winner (trial {winner['trial']}, {format_number(winner['value'])})"
    return Run(sweep.find(*Path(winner["run"]).parts)), sentence
