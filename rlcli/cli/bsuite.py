"""`rlcli bsuite`: trains a recipe on the experiments of bsuite, and scores it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import rlcli
from rlcli.cli import batch, completion, options, output, training_outcome
from rlcli.cli.options import (
    Jobs,
    Json,
    MaxTime,
    Quiet,
    Set,
    Smoke,
    SweepName,
    SweepRun,
)

if TYPE_CHECKING:
    from rlcli.training.batch import PlanEnd
    from rlcli.training.plans import Plan


def command(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            autocompletion=completion.complete_recipe,
            help="A YAML file, or the name of a built-in recipe; or the folder of a "
            "sweep, which is scored again.",
            show_default=False,
        ),
    ],
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID...]",
            help="Ids such as `catch_noise/3`, experiments such as `catch_noise`, or "
            "tags such as `noise`. Default: all.",
            show_default=False,
        ),
    ] = None,
    set: Set = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=options.MAX_SEED,
            metavar="N",
            help="The first seed. Default: 0.",
            show_default=False,
        ),
    ] = None,
    mnist: Annotated[
        Path | None,
        typer.Option(
            "--mnist",
            metavar="DIR",
            help="The folder of the MNIST training set, which some experiments need.",
            show_default=False,
        ),
    ] = None,
    jobs: Jobs = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            metavar="DIR",
            help="Create the sweep below DIR/bsuite/<recipe>. Default: runs.",
            show_default=False,
        ),
    ] = None,
    run: SweepRun = None,
    name: SweepName = None,
    max_time: MaxTime = None,
    smoke: Smoke = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the sweep in this folder: train what has not finished.",
        ),
    ] = False,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="With `--resume`: allow the recipe of the sweep to import code "
            "outside rlcli, and its trackers to contact a host.",
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a recipe on the experiments of bsuite, and score it.

    Writes the results of each id, tables of scores and a radar plot, and prints the
    folder. The exit code is that of `rlcli train` for several runs.
    """
    from rlcli.sweeps.bsuite.results import tables  # here, to keep `--help` fast
    from rlcli.training.batch import exit_code

    last: list[PlanEnd] = []
    with batch.show_runs(quiet) as show:

        def report(plans: Sequence[Plan], ended: Sequence[PlanEnd]) -> None:
            last[:] = ended
            show(plans, ended)

        data = training_outcome.complete(
            rlcli.bsuite,
            recipe,
            ids or (),
            set=tuple(set),
            seed=seed,
            mnist=mnist,
            jobs=jobs,
            runs=runs,
            run=run,
            name=name,
            max_time=options.parse_deadline(max_time),
            smoke=smoke,
            resume=resume,
            trust=trust,
            report=report,
        )
    for note in data["notes"]:
        output.print_message(note)
    if json:
        output.print_data(output.as_json(data))
    else:
        screen = output.table_console()
        for table in tables(data):
            output.print_table(table, screen)
            screen.print()
        output.print_data(data["folder"])
    raise typer.Exit(exit_code(last))
