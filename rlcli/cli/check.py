"""`rlcli check`: checks recipes without running them."""

from collections.abc import Mapping
from typing import Any

import typer

import rlcli
from rlcli.cli import options, output
from rlcli.errors import OK, RlcliError


def command(
    recipes: list[str] = options.RECIPES,
    set: list[str] = options.SET,
    json: bool = options.JSON,
) -> None:
    """Check recipes without training them.

    Prints what each function reads, its parameters and their shapes, and the memory
    that a run needs.
    """
    from rlcli.recipe import documents  # here, to keep `--help` fast

    code = OK
    for recipe in recipes:
        try:
            reports = rlcli.check([recipe], set=set)
        except RlcliError as error:  # continue with the other recipes
            output.print_error(error)
            code = error.code
            continue
        for report in reports:
            if json:
                output.print_json(report)
            else:
                text = documents.dump_yaml(_with_units(report))
                output.print_data(text.rstrip("\n"))
    raise typer.Exit(code)


def _with_units(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report with sizes of memory as people read them."""
    from rlcli.xla.machine import format_size

    peak = {name: format_size(size) for name, size in report["peak_memory"].items()}
    return {**report, "memory": format_size(report["memory"]), "peak_memory": peak}
