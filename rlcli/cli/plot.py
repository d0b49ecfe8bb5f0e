"""`rlcli plot`: draws learning curves of runs."""

from pathlib import Path

import rlcli
from rlcli.cli import options, output


def command(
    runs: list[str] = options.RUNS,
    x: str = options.option(
        "--x AXIS",
        "`steps`, `seconds` of training or `updates`.",
        default="steps",
        words=("steps", "seconds", "updates"),
    ),
    y: str | None = options.METRIC,
    threshold: float | None = options.THRESHOLD,
    center: str = options.CENTER,
    group: str | None = options.GROUP,
    filter: list[str] = options.FILTER,
    tag: list[str] = options.TAGGED,
    reference: list[str] = options.REFERENCE,
    output_: Path | None = options.option(
        "--output FILE", "A `.png`, `.svg` or `.pdf` file, instead of the terminal."
    ),
    width: str | None = options.WIDTH,
    serif: bool = options.SERIF,
    json: bool = options.JSON,
) -> None:
    """Draw learning curves of runs, with an interval over seeds.

    All runs of a recipe form one curve, over the seeds of all of them. A folder stands
    for all runs in it.
    """
    result = options.call(rlcli.plot, locals())
    output.print_notes(result["notes"])
    if json:
        output.print_json(result)
    elif output_ is not None:
        output.print_data(output_)
    else:
        from rlcli.results.chart import draw_chart  # here, to keep `--help` fast

        screen = output.console()
        height = max(8, min(screen.height - 8, screen.width // 5, 24))
        ascii = not screen.encoding.startswith("utf")
        text = draw_chart(result, min(screen.width, 200), height, ascii=ascii)
        screen.print(text, soft_wrap=True, end="")
