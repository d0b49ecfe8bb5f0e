"""`rlcli train`: trains the agent of a recipe."""

from pathlib import Path
from typing import Any

import typer

import rlcli
from rlcli.cli import options, study_screen, training_outcome


@options.with_engines
def command(
    recipe: list[str] = options.RECIPES,
    set: list[str] = options.SET,
    vary: list[str] = options.VARY,
    vary_zip: list[str] = options.VARY_ZIP,
    init: Path | None = options.INIT,
    seed: int | None = options.seed_option("The first seed."),
    seeds: int | None = options.SEEDS,
    runs: Path = options.option(
        "--runs DIR", "Create the run below DIR/<recipe>.", default=Path("runs")
    ),
    run: Path | None = options.option("--run DIR", "Create the run in exactly DIR."),
    name: str | None = options.option("--name NAME", "Name the run and its folder."),
    tag: list[str] = options.repeated_option(
        "--tag TAG", "Tag the run for `rlcli runs`. Can be repeated."
    ),
    max_time: str | None = options.MAX_TIME,
    smoke: bool = options.SMOKE,
    quiet: bool = options.QUIET,
    profile: bool = options.flag(
        "--profile", "Profile a few iterations: print where time is spent."
    ),
    debug: bool = options.flag(
        "--debug",
        "Like `--smoke`, without compilation: say where a number is not finite.",
    ),
    trust: bool = options.TRUST_RECIPE,
    coordinator: str | None = options.COORDINATOR,
    process: str | None = options.PROCESS,
    **engines: Any,
) -> None:
    """Train the agent of a recipe and save it in a run folder.

    Prints the folder to stdout, and a command to try next to stderr. Several recipes,
    or `--vary`, train several runs. Runs that differ only in numbers share one compiled
    program.
    """
    from rlcli.recipe import init_settings, locate_recipe, read_recipe  # as late

    settings = [*set, *init_settings(init)]
    recipes = [read_recipe(locate_recipe(each)) for each in recipe]
    (first, *others) = recipes
    varies = first.with_settings(*settings).combinations != [()]
    if others or vary or vary_zip or varies:
        message = "is for a single run, without other recipes or varied options"
        options.refuse(message, ["profile", "debug", "coordinator", "process"])
        keywords = options.select(rlcli.study, locals(), study=recipes, set=settings)
        raise typer.Exit(study_screen.train_and_report(**keywords))
    options.refuse_engines()
    keywords = options.select(rlcli.train, locals(), recipe=first)
    folder = training_outcome.complete(rlcli.train, **keywords)
    raise typer.Exit(training_outcome.report_training(folder, quiet=quiet))
