"""`rlcli compare`: compares groups of runs, with intervals over seeds."""

from pathlib import Path

import rlcli
from rlcli.cli import options, output
from rlcli.quoting import quote_rich


def command(
    runs: list[str] = options.RUNS,
    result: str = options.option(
        "--result NAME",
        "The result of a seed: its `last` evaluation, its `best` one, or "
        "`auc`, the mean over training.",
        default="last",
        words=("last", "best", "auc"),
    ),
    y: str | None = options.METRIC,
    threshold: float | None = options.THRESHOLD,
    group: str | None = options.GROUP,
    filter: list[str] = options.FILTER,
    tag: list[str] = options.TAGGED,
    reference: list[str] = options.REFERENCE,
    allow_differences: bool = options.flag(
        "--allow-differences",
        "Compare runs with different steps, evaluations or options of the environment.",
    ),
    output_: Path | None = options.option(
        "--output FILE",
        "Write tables to a `.md`, `.tex`, `.csv`, `.html` or `.json` file, or a figure "
        "to a `.pdf`, `.svg` or `.png` file.",
    ),
    width: str | None = options.WIDTH,
    serif: bool = options.SERIF,
    json: bool = options.JSON,
) -> None:
    """Compare groups of runs: mean, median, IQM and intervals.

    The intervals are over seeds. Also prints the probability that one group is better
    than another, and over several environments normalized scores, a performance profile
    and the optimality gap.
    """
    data = options.call(rlcli.compare, locals())
    output.print_notes(data["notes"])
    if json or output_ is not None:
        output.print_data(output.as_json(data) if json else output_)
        return
    from rlcli.results import comparison_tables  # here, to keep `--help` fast

    screen = output.table_console()
    sentence = quote_rich(comparison_tables.describe_comparison(data))
    screen.print(sentence, soft_wrap=not screen.is_terminal)
    tables = [*comparison_tables.tables(data)]
    letters, tables = comparison_tables.fit(tables, screen.width)
    for label, letter in letters.items():
        screen.print(quote_rich(f"  {letter}  {label}"), soft_wrap=True)
    for table in tables:
        screen.print()
        output.print_table(table, screen)
