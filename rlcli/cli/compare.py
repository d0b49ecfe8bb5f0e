"""`rlcli compare`: compares groups of runs, with intervals over seeds."""

from pathlib import Path

import rlcli
from rlcli.cli import output
from rlcli.cli.options import (
    FILTER,
    GROUP,
    JSON,
    REFERENCE,
    RUNS,
    SERIF,
    TAGGED,
    THRESHOLD,
    WIDTH,
    option,
)


def command(
    runs: list[str] = RUNS,
    result: str = option(
        "last",
        "--result NAME",
        "The result of a seed: its `last` evaluation, its `best` one, or "
        "`auc`, the mean over training.",
        words=("last", "best", "auc"),
    ),
    y: str | None = option(
        None,
        "--y METRIC",
        "A metric. Default: `evaluation.mean`, or without evaluations `avg_G`.",
    ),
    threshold: float | None = THRESHOLD,
    group: str | None = GROUP,
    filter: list[str] = FILTER,
    tag: list[str] = TAGGED,
    reference: list[str] = REFERENCE,
    allow_differences: bool = option(
        False,
        "--allow-differences",
        "Compare runs with different steps, evaluations or options of the environment.",
    ),
    output_: Path | None = option(
        None,
        "--output FILE",
        "Write tables to a `.md`, `.tex`, `.csv`, `.html` or `.json` file, or a figure "
        "to a `.pdf`, `.svg` or `.png` file.",
    ),
    width: str | None = WIDTH,
    serif: bool = SERIF,
    json: bool = JSON,
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
        filter=filter,
        tag=tag,
        reference=reference,
        allow_differences=allow_differences,
        output=output_,
        width=width,
        serif=serif,
    )
    output.print_notes(data["notes"])
    if json:
        output.print_json(data)
    elif output_ is not None:
        output.print_data(output_)
    else:
        output.print_comparison(data)
