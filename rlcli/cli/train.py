"""`rlcli train`: trains the agent of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import options, training_outcome
from rlcli.cli.options import MaxTime, Quiet, Set


def command(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A YAML file, or the name of a built-in recipe.",
            show_default=False,
        ),
    ],
    set: Set = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, max=options.MAX_SEED, metavar="N", help="The first seed."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            metavar="N",
            help="Train N consecutive seeds simultaneously.",
        ),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option(
            "--runs", metavar="DIR", help="Create the run below DIR/<recipe>."
        ),
    ] = Path("runs"),
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Create the run in exactly DIR."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name the run and its folder."),
    ] = None,
    tag: Annotated[
        list[str],
        typer.Option(
            "--tag",
            metavar="TAG",
            help="Tag the run for `rlcli runs`. Can be repeated.",
        ),
    ] = [],  # noqa: B006 - as for `--set`
    max_time: MaxTime = None,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Test the whole pipeline with a tiny budget."),
    ] = False,
    quiet: Quiet = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Trace a few iterations: where does their time go?"
        ),
    ] = False,
) -> None:
    """Train the agent of a recipe and save it in a run folder.

    Prints the folder to stdout, and a command to try next to stderr.
    """
    from rlcli.training import signals  # here, to keep `--help` fast

    limit = options.parse_max_time(max_time)
    with signals.own_process():
        folder = rlcli.train(
            recipe,
            set=tuple(set),
            seed=seed,
            seeds=seeds,
            runs=runs,
            run=run,
            name=name,
            tag=tuple(tag),
            max_time=limit,
            smoke=smoke,
            quiet=quiet,
            profile=profile,
        )
    raise typer.Exit(training_outcome.report_training(folder, quiet=quiet))
