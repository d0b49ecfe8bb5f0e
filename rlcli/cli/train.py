"""`rlcli train`: trains the agent of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import rlcli
from rlcli.cli import batch, completion, options, training_outcome
from rlcli.cli.options import (
    Coordinator,
    Jobs,
    MaxTime,
    Process,
    Quiet,
    Seeds,
    Set,
    Smoke,
    TrustRecipe,
)


def command(
    recipe: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            autocompletion=completion.complete_recipe,
            help="YAML files, or names of built-in recipes.",
            show_default=False,
        ),
    ],
    set: Set = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="KEY=VALUE,...",
            autocompletion=completion.complete_vary_option,
            help="Train a run for each value: `optimizer.learning_rate=1e-4,1e-3`. "
            "Repeat it for a grid.",
        ),
    ] = [],  # noqa: B006 - as for `--set`
    vary_zip: Annotated[
        list[str],
        typer.Option(
            "--vary-zip",
            metavar="KEY=VALUE,...",
            autocompletion=completion.complete_vary_option,
            help="Like `--vary`, but pairs the values of all `--vary-zip` options in "
            "order, instead of a grid.",
        ),
    ] = [],  # noqa: B006
    jobs: Jobs = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, max=options.MAX_SEED, metavar="N", help="The first seed."
        ),
    ] = None,
    seeds: Seeds = None,
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
    smoke: Smoke = False,
    quiet: Quiet = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Profile a few iterations: print where time is spent."
        ),
    ] = False,
    trust: TrustRecipe = True,
    coordinator: Coordinator = None,
    process: Process = None,
) -> None:
    """Train the agent of a recipe and save it in a run folder.

    Prints the folder to stdout, and a command to try next to stderr. Several recipes,
    or `--vary`, train several runs. Runs that differ only in numbers share one compiled
    program.
    """
    keywords: dict[str, Any] = {
        "set": tuple(set),
        "seed": seed,
        "seeds": seeds,
        "runs": runs,
        "run": run,
        "name": name,
        "tag": tuple(tag),
        "max_time": options.parse_deadline(max_time),
        "smoke": smoke,
        "quiet": quiet,
        "trust": trust,
    }
    from rlcli.recipe import locate_recipe, read_recipe  # here, to keep `--help` fast

    recipes = [read_recipe(locate_recipe(each)) for each in recipe]
    (first, *others) = recipes
    varies = first.with_settings(*set).combinations != [()]
    if others or vary or vary_zip or varies:
        for option, is_given in (
            ("--profile", profile),
            ("--coordinator", coordinator is not None),
        ):
            if is_given:
                message = "is for a single run, without other recipes or varied options"
                raise typer.BadParameter(message, param_hint=option)
        keywords |= {"vary": vary, "vary_zip": vary_zip, "jobs": jobs}
        raise typer.Exit(batch.train_and_report(recipes, **keywords))
    folder = training_outcome.complete(
        rlcli.train,
        first,
        profile=profile,
        coordinator=coordinator,
        process=process,
        **keywords,
    )
    raise typer.Exit(training_outcome.report_training(folder, quiet=quiet))
