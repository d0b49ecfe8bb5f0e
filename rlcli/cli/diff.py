"""`rlcli diff`: compares two runs or recipes."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, options, output
from rlcli.cli.options import Json

METAVAR = "RUN|RECIPE"


def command(
    first: Annotated[
        str,
        typer.Argument(
            metavar=METAVAR,
            autocompletion=completion.complete_run_or_recipe,
            help="The folder of a run, a YAML file, or the name of a built-in recipe.",
            show_default=False,
        ),
    ],
    second: Annotated[
        str,
        typer.Argument(
            metavar=METAVAR,
            autocompletion=completion.complete_run_or_recipe,
            help="Another run or recipe, to compare with.",
            show_default=False,
        ),
    ],
    json: Json = False,
) -> None:
    """Compare two runs or recipes.

    Prints the options that differ. For two runs, also prints differences in versions,
    git state, machines and seeds, and the results of both.
    """
    paths = [options.choose_run(path) for path in (first, second)]
    result = rlcli.diff(*paths)
    if json:
        output.print_data(output.as_json(result))
        return
    from rlcli.cli import tables  # here, to keep `--help` fast

    output.table_console().print(tables.diff_table(result))
