"""`rlcli plot`: draws learning curves of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import output
from rlcli.cli.options import Group, Json, Runs, Threshold


def command(
    runs: Runs,
    x: Annotated[
        str,
        typer.Option(
            "--x", metavar="AXIS", help="`steps`, `seconds` of training or `updates`."
        ),
    ] = "steps",
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            metavar="METRIC",
            help="A metric, such as `loss`. Default: `evaluation.mean`, or without "
            "evaluations `avg_G`.",
            show_default=False,
        ),
    ] = None,
    threshold: Threshold = None,
    center: Annotated[
        str, typer.Option("--center", metavar="NAME", help="`mean` or `iqm` of seeds.")
    ] = "mean",
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

    The runs of a recipe are one curve, with the seeds of all of them. A folder stands
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
