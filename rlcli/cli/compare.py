"""`rlcli compare`: compares groups of runs, with intervals over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import completion, output
from rlcli.cli.options import Group, Json, Runs, Threshold


def command(
    runs: Runs,
    result: Annotated[
        str,
        typer.Option(
            "--result",
            metavar="NAME",
            autocompletion=completion.complete_word("last", "best", "auc"),
            help="The result of a seed: its `last` evaluation, its `best` one, or "
            "`auc`, the mean over training.",
        ),
    ] = "last",
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            metavar="METRIC",
            help="A metric. Default: `evaluation.mean`, or without evaluations "
            "`avg_G`.",
            show_default=False,
        ),
    ] = None,
    threshold: Threshold = None,
    group: Group = "recipe",
    normalize: Annotated[
        list[str],
        typer.Option(
            "--normalize",
            metavar="[ENV=]MIN,MAX",
            help="Reference returns, scaled to 0 and 1 for statistics over "
            "environments. Can be repeated.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - Typer copies it, and supports no other empty default
    allow_differences: Annotated[
        bool,
        typer.Option(
            "--allow-differences",
            help="Compare runs with different steps, evaluations or options of the "
            "environment.",
        ),
    ] = False,
    output_: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write tables to a `.md`, `.html` or `.json` file, or a figure to a "
            "`.pdf`, `.svg` or `.png` file.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare groups of runs: mean, median, IQM and intervals.

    The intervals are over seeds. Also prints the probability that one group is better
    than another, and over several environments normalized scores, a performance profile
    and the optimality gap.
    """
    data = rlcli.compare(
        runs,
        result=result,
        y=y,
        threshold=threshold,
        group=group,
        normalize=normalize,
        allow_differences=allow_differences,
        output=output_,
    )
    output.print_notes(data["notes"])
    if json:
        output.print_data(output.as_json(data))
    elif output_ is not None:
        output.print_data(output_)
    else:
        output.print_comparison(data)
