"""`rlcli plot`: draws learning curves of runs."""

from pathlib import Path

import rlcli
from rlcli.cli import output
from rlcli.cli.options import (
    CENTER,
    FILTER,
    GROUP,
    JSON,
    METRIC,
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
    x: str = option(
        "steps",
        "--x AXIS",
        "`steps`, `seconds` of training or `updates`.",
        words=("steps", "seconds", "updates"),
    ),
    y: str | None = METRIC,
    threshold: float | None = THRESHOLD,
    center: str = CENTER,
    group: str | None = GROUP,
    filter: list[str] = FILTER,
    tag: list[str] = TAGGED,
    reference: list[str] = REFERENCE,
    output_: Path | None = option(
        None,
        "--output FILE",
        "A `.png`, `.svg` or `.pdf` file, instead of the terminal.",
    ),
    width: str | None = WIDTH,
    serif: bool = SERIF,
    json: bool = JSON,
) -> None:
    """Draw learning curves of runs, with an interval over seeds.

    All runs of a recipe form one curve, over the seeds of all of them. A folder stands
    for all runs in it.
    """
    result = rlcli.plot(
        runs,
        x=x,
        y=y,
        threshold=threshold,
        center=center,
        group=group,
        filter=filter,
        tag=tag,
        reference=reference,
        output=output_,
        width=width,
        serif=serif,
    )
    output.print_notes(result["notes"])
    if json:
        output.print_json(result)
    elif output_ is not None:
        output.print_data(output_)
    else:
        output.print_chart(result)
