"""`rlcli check`: whether recipes are sound, without running them."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcli
from rlcli.cli import output
from rlcli.errors import OK, RlcliError


def command(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE",
            help="YAML files, or names of recipes that come with rlcli.",
            show_default=False,
        ),
    ],
) -> None:
    """Check recipes: parameters, memory, shapes; without training."""
    from rlcli.recipe import documents  # here, for `--help` is to answer at once

    code = OK
    for recipe in recipes:
        try:
            reports = rlcli.check([recipe])
        except RlcliError as error:  # the others are to be checked all the same
            output.print_message(f"error: {error}")
            code = error.code
            continue
        for report in reports:
            output.print_data(documents.dump_yaml(report).rstrip("\n"))
    raise typer.Exit(code)
