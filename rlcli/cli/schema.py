"""`rlcli schema`: the JSON Schema of recipes, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import output


def command(
    output_: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="Write the schema to FILE, not to stdout."
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of recipes, with all installed parts.

    An editor completes and checks a recipe that has the comment
    `# yaml-language-server: $schema=FILE`.
    """
    schema = rlcli.schema(output=output_)
    output.print_data(output.as_json(schema) if output_ is None else output_)
