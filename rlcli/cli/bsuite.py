"""`rlcli bsuite`: trains a recipe on the experiments of bsuite, and scores it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import rlcli
from rlcli.cli import completion, options, output, study_screen, training_outcome

if TYPE_CHECKING:
    from rlcli.runs.study_record import Cell
    from rlcli.studies.study_loop import CellEnd


@options.with_engines
def command(
    recipe: str = options.argument(
        "RECIPE",
        "A YAML file, or the name of a built-in recipe; or the folder of a "
        "sweep, which is scored again.",
        complete=completion.complete_recipe,
    ),
    ids: list[str] | None = options.argument(
        "ID",
        "Ids such as `catch_noise/3`, experiments such as `catch_noise`, or "
        "tags such as `noise`. Default: all.",
        default=None,
    ),
    set: list[str] = options.SET,
    seed: int | None = options.seed_option("The first seed. Default: 0."),
    mnist: Path | None = options.option(
        "--mnist DIR",
        "The folder of the MNIST training set, which some experiments need.",
    ),
    runs: Path | None = options.option(
        "--runs DIR", "Create the sweep below DIR/bsuite/<recipe>. Default: runs."
    ),
    run: Path | None = options.SWEEP_RUN,
    name: str | None = options.SWEEP_NAME,
    max_time: str | None = options.MAX_TIME,
    smoke: bool = options.SMOKE,
    resume: bool = options.flag(
        "--resume", "Continue the sweep in this folder: train runs that have not ended."
    ),
    trust: bool | None = options.option(
        "--trust/--no-trust",
        "With `--resume`: allow the recipe of the sweep to import code "
        "outside rlcli, and its trackers to contact a host.",
    ),
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
    **engines: Any,
) -> None:
    """Train a recipe on the experiments of bsuite, and score it.

    Writes the results of each id, tables of scores and a radar plot, and prints the
    folder. The exit code is that of `rlcli train` for several runs.
    """
    keywords = options.select(rlcli.bsuite, locals(), ids=ids or ())
    raise typer.Exit(train_and_score(quiet=quiet, json=json, **keywords))


def train_and_score(*, quiet: bool, json: bool = False, **keywords: Any) -> int:
    """Calls `rlcli.bsuite`, and prints the scores; returns the exit code."""
    from rlcli.runs.run_folder import Run  # here, to keep `--help` fast
    from rlcli.studies.bsuite.results import tables
    from rlcli.studies.engines.engine_options import EngineOptions
    from rlcli.studies.study_loop import exit_code

    last: list[CellEnd] = []
    with study_screen.show_runs(quiet) as show:

        def report(cells: Sequence[Cell], ended: Sequence[CellEnd]) -> None:
            last[:] = ended
            show(cells, ended)

        data = training_outcome.complete(rlcli.bsuite, report=report, **keywords)
    if (engines := EngineOptions.select(keywords)).is_array:
        folder = Path(data["folder"])
        then = Run(folder).command("resume")  # trains what is left, and scores
        return study_screen.report_script(folder, engines, then, quiet)
    for note in data["notes"]:
        output.print_message(note)
    if json:
        output.print_json(data)
    else:
        screen = output.table_console()
        for table in tables(data):
            output.print_table(table, screen)
            screen.print()
        output.print_data(data["folder"])
    return exit_code(last)
