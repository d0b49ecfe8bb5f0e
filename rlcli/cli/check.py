"""`rlcli check`: checks recipes without running them."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, output
from rlcli.cli.options import Set
from rlcli.errors import OK, RlcliError


def command(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE",
            autocompletion=completion.complete_recipe,
            help="YAML files, or names of built-in recipes.",
            show_default=False,
        ),
    ],
    set: Set = [],  # noqa: B006 - Typer copies it, and supports no other empty default
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
