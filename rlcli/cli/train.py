"""`rlcli train`: from a recipe to the folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import options, report
from rlcli.cli.options import MaxTime, Quiet, Set


def command(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A YAML file, or the name of a recipe that comes with rlcli.",
            show_default=False,
        ),
    ],
    set: Set = [],  # noqa: B006 - Typer copies it, and knows no other empty default
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, max=options.MAX_SEED, metavar="N", help="The first seed."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", min=1, metavar="N", help="Train N seeds at once, from the first."
        ),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option(
            "--runs", metavar="DIR", help="Make the run's folder under this one."
        ),
    ] = Path("runs"),
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Make this very folder the run's."),
    ] = None,
    max_time: MaxTime = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Try the whole pipeline in a few seconds.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train the agent of a recipe into a run folder.

    Prints the folder on stdout, and on stderr the command to try next.
    """
    from rlcli.training import signals  # here, for `--help` is to answer at once

    limit = options.parse_max_time(max_time)
    signals.own_process()
    folder = rlcli.train(
        recipe,
        set=tuple(set),
        seed=seed,
        seeds=seeds,
        runs=runs,
        run=run,
        max_time=limit,
        smoke=smoke,
        quiet=quiet,
    )
    raise typer.Exit(report.report_training(folder, quiet=quiet))
