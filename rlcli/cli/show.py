"""`rlcli show`: a recipe with every default, or what a part takes."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcli
from rlcli.cli import output


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|KIND",
            help="A recipe; or a kind of part, followed by its name.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Of the part.", show_default=False),
    ] = None,
) -> None:
    """Show a recipe with every default filled in, or what a part takes."""
    words = (what,) if name is None else (what, name)
    output.print_data(rlcli.show(*words).rstrip("\n"))
