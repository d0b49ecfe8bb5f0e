"""`rlcli check`: checks recipes without running them."""

from __future__ import annotations

import typer

import rlcli
from rlcli.cli import completion, output
from rlcli.cli.options import SET, argument
from rlcli.errors import OK, RlcliError


def command(
    recipes: list[str] = argument(
        "RECIPE",
        "YAML files, or names of built-in recipes.",
        complete=completion.complete_recipe,
    ),
    set: list[str] = SET,
) -> None:
    """Check recipes without training them.

    Prints each recipe's number of parameters, memory in bytes and array shapes.
    """
    from rlcli.recipe import documents  # here, to keep `--help` fast

    code = OK
    for recipe in recipes:
        try:
            reports = rlcli.check([recipe], set=tuple(set))
        except RlcliError as error:  # continue with the other recipes
            output.print_error(error)
            code = error.code
            continue
        for report in reports:
            output.print_data(documents.dump_yaml(report).rstrip("\n"))
    raise typer.Exit(code)
