"""`rlcli report`: writes a page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rlcli
from rlcli.cli import output
from rlcli.cli.options import (
    Best,
    Center,
    Group,
    Metric,
    Quiet,
    Runs,
    Seed,
    Threshold,
    Trust,
)
from rlcli.runs import thread_layout


def command(
    runs: Runs,
    output_: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="The `.html` file. Default: `report.html`, in the run's folder for a "
            "single run, else in the current folder.",
            show_default=False,
        ),
    ] = None,
    y: Metric = None,
    threshold: Threshold = None,
    center: Center = "mean",
    group: Group = "recipe",
    episodes: Annotated[
        int,
        typer.Option(
            "--episodes",
            metavar="N",
            min=0,
            help="Episodes of each seed. 0 loads no policies: no films, no JAX.",
        ),
    ] = 50,
    best: Best = False,
    seed: Seed = 0,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Write an HTML page about runs: charts, films, provenance.

    The page shows results with intervals over seeds, learning curves, episodes, the
    metrics of updates, recipes and their differences. It works offline.
    """
    if episodes:
        thread_layout.apply_for_policy(runs[0])
    file = rlcli.report(
        runs,
        output=output_,
        y=y,
        threshold=threshold,
        center=center,
        group=group,
        episodes=episodes,
        best=best,
        seed=seed,
        trust=trust,
        report_phase=(lambda phase: None) if quiet else output.print_message,
    )
    output.print_data(file)
    if open_:
        import webbrowser  # here, to keep `--help` fast

        webbrowser.open(file.absolute().as_uri())
