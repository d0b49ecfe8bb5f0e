"""`rlcli list`: what there is to name in a recipe."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcli
from rlcli.cli import output
from rlcli.cli.options import Json


def command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="Of this kind only, in singular or plural: `updaters`.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the parts and the recipes that there are."""
    kinds = rlcli.list(kind)
    if json:
        output.data(output.as_json(kinds))
        return
    for each, entries in kinds.items():
        output.data(each)
        width = max((len(entry["name"]) for entry in entries), default=0)
        for entry in entries:
            output.data(f"  {entry['name']:{width}}  {entry['summary']}".rstrip())
