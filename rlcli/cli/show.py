"""`rlcli show`: prints a recipe with every default, or the options of a part."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcli
from rlcli.cli import output
from rlcli.cli.options import Set


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|KIND",
            help="A recipe, or the kind of a part, such as `updater`.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the part.", show_default=False),
    ] = None,
    set: Set = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    diff_from_base: Annotated[
        bool,
        typer.Option(
            "--diff-from-base",
            help="Show only what differs from the recipes that the recipe extends.",
        ),
    ] = False,
) -> None:
    """Show a recipe with all defaults, or the options of a part."""
    words = (what,) if name is None else (what, name)
    text = rlcli.show(*words, set=tuple(set), diff_from_base=diff_from_base)
    output.print_data(text.rstrip("\n"))
