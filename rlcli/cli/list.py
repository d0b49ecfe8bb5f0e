"""`rlcli list`: lists parts and recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, output
from rlcli.cli.options import Json


def command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            autocompletion=completion.complete_kind,
            help="Only this kind, singular or plural: `updaters`, `recipes`.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the available parts and recipes."""
    kinds = rlcli.list(kind)
    if json:
        output.print_data(output.as_json(kinds))
        return
    for kind_name, entries in kinds.items():
        traits = [key for key in dict(*entries[:1]) if key not in ("name", "summary")]
        if len(kinds) == 1 and traits:
            rows = [{"name": kind_name, **{key: key for key in traits}}, *entries]
            _print_table(rows, ["name", *traits])
        else:
            output.print_data(kind_name)
            _print_table(entries, ["name", "summary"])


def _print_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    """Prints rows with aligned columns, indented below their heading."""
    widths = {key: max((len(row[key]) for row in rows), default=0) for key in columns}
    for row in rows:
        cells = "  ".join(f"{row[key]:{widths[key]}}" for key in columns)
        output.print_data(f"  {cells}".rstrip())
