"""`rlcli verify-resume`: tests that a stopped and resumed run is identical."""

from typing import Any

import typer

import rlcli
from rlcli import errors
from rlcli.cli import completion, options, output


def command(
    recipe: str = options.argument(
        "RECIPE",
        "A YAML file, or the name of a built-in recipe.",
        complete=completion.complete_recipe,
    ),
    set: list[str] = options.SET,
    seeds: int | None = options.SEEDS,
    steps: int | None = options.option(
        "--steps N", "Steps to train. Default: at least 512, with 12 updates.", min=1
    ),
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
) -> None:
    """Verify that a stopped and resumed run gives the same bytes.

    Trains the recipe twice with a small budget: once without a stop, and once with
    stops at several points. Each resume is a new process. Compares metrics and state;
    the exit code is 1 if they differ. Creates no run.
    """
    result = rlcli.verify_resume(recipe, set=set, seeds=seeds, steps=steps, quiet=quiet)
    output.print_data(output.as_json(result) if json else _describe(result))
    raise typer.Exit(errors.OK if result["identical"] else errors.USER_ERROR)


def _describe(result: dict[str, Any]) -> str:
    """The result in words."""
    name, count = f"`{result['recipe']}`", len(result["stops"])
    if result["identical"]:
        return (
            f"{name} resumes exactly: metrics and state are identical after {count} "
            f"{'stop' if count == 1 else 'stops'}, up to step {result['step']:,}"
        )
    lines = [f"{name} does not resume exactly"]
    lines += [f"  not restored: {message}" for message in result["inexact"]]
    lines += output.describe_differences(result)
    if after := result["after"]:
        lines.append(
            f"  the last stop before: step {after['step']:,}, {after['place']}"
        )
    return "\n".join([*lines, "", f"hint: {result['hint']}"])
