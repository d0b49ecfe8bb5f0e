"""`rlcli train`: trains the agent of a recipe."""

from pathlib import Path
from typing import Any

import typer

import rlcli
from rlcli.cli import completion, options, study_screen, training_outcome
from rlcli.cli.options import argument, option


@options.with_engines
def command(
    recipe: list[str] = argument(
        "RECIPE...",
        "YAML files, or names of built-in recipes.",
        complete=completion.complete_recipe,
    ),
    set: list[str] = options.SET,
    vary: list[str] = options.VARY,
    vary_zip: list[str] = options.VARY_ZIP,
    init: Path | None = options.INIT,
    seed: int | None = option(
        None, "--seed N", "The first seed.", min=0, max=options.MAX_SEED
    ),
    seeds: int | None = options.SEEDS,
    runs: Path = option(
        Path("runs"), "--runs DIR", "Create the run below DIR/<recipe>."
    ),
    run: Path | None = option(None, "--run DIR", "Create the run in exactly DIR."),
    name: str | None = option(None, "--name NAME", "Name the run and its folder."),
    tag: list[str] = option(
        [], "--tag TAG", "Tag the run for `rlcli runs`. Can be repeated."
    ),
    max_time: str | None = options.MAX_TIME,
    smoke: bool = options.SMOKE,
    quiet: bool = options.QUIET,
    profile: bool = option(
        False, "--profile", "Profile a few iterations: print where time is spent."
    ),
    debug: bool = option(
        False,
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

    set = [*set, *init_settings(init)]
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
    recipes = [read_recipe(locate_recipe(each)) for each in recipe]
    (first, *others) = recipes
    varies = first.with_settings(*set).combinations != [()]
    if others or vary or vary_zip or varies:
        for flag, is_given in (
            ("--profile", profile),
            ("--debug", debug),
            ("--coordinator", coordinator is not None),
        ):
            if is_given:
                message = "is for a single run, without other recipes or varied options"
                raise typer.BadParameter(message, param_hint=flag)
        keywords |= {"vary": vary, "vary_zip": vary_zip, **engines}
        keywords["max_time"] = options.parse_limit(max_time, engines)
        raise typer.Exit(
            study_screen.train_and_report(rlcli.study, recipes, **keywords)
        )
    options.refuse_engines(engines)
    folder = training_outcome.complete(
        rlcli.train,
        first,
        profile=profile,
        debug=debug,
        coordinator=coordinator,
        process=process,
        **keywords,
    )
    raise typer.Exit(training_outcome.report_training(folder, quiet=quiet))
