"""`rlcli show`: prints a recipe with every default, a part's options, or a run."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, options, output
from rlcli.cli.options import Json, Set


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|RUN|KIND",
            autocompletion=completion.complete_show_argument,
            help="A recipe, the folder of a run, or the kind of a part, such as "
            "`updater`.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=completion.complete_part,
            help="Name of the part.",
            show_default=False,
        ),
    ] = None,
    set: Set = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    diff_from_base: Annotated[
        bool,
        typer.Option(
            "--diff-from-base",
            help="Show only what differs from the recipes that the recipe extends.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show a recipe with all defaults, a part's options, or a run.

    For a run, prints status, steps and return, and the options that differ from the
    built-in recipe.
    """
    words = (what,) if name is None else (what, name)
    if name is None:
        words = (str(options.choose_run(what, keep_variants=True)),)
    if json:
        from rlcli.runs.description import show_data  # here, to keep `--help` fast

        data = show_data(*words, set=tuple(set), diff_from_base=diff_from_base)
        output.print_data(output.as_json(data))
    else:
        text = rlcli.show(*words, set=tuple(set), diff_from_base=diff_from_base)
        output.print_data(text.rstrip("\n"))
