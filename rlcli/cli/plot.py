"""`rlcli plot`: draws learning curves of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, output
from rlcli.cli.options import Center, Group, Json, Metric, Runs, Threshold


def command(
    runs: Runs,
    x: Annotated[
        str,
        typer.Option(
            "--x",
            metavar="AXIS",
            autocompletion=completion.complete_word("steps", "seconds", "updates"),
            help="`steps`, `seconds` of training or `updates`.",
        ),
    ] = "steps",
    y: Metric = None,
    threshold: Threshold = None,
    center: Center = "mean",
    group: Group = "recipe",
    output_: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="A `.png`, `.svg` or `.pdf` file, instead of the terminal.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Draw learning curves of runs, with an interval over seeds.

    All runs of a recipe form one curve, over the seeds of all of them. A folder stands
    for all runs in it.
    """
    result = rlcli.plot(
        runs, x=x, y=y, threshold=threshold, center=center, group=group, output=output_
    )
    output.print_notes(result["notes"])
    if json:
        output.print_data(output.as_json(result))
    elif output_ is not None:
        output.print_data(output_)
    else:
        output.print_chart(result)
