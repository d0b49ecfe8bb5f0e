"""`rlcli report`: writes a page about runs."""

from pathlib import Path

import rlcli
from rlcli.cli import options, output
from rlcli.runs import thread_layout


def command(
    runs: list[str] = options.RUNS,
    output_: Path | None = options.option(
        "--output FILE",
        "The `.html` file. Default: `report.html`, in the run's folder for a "
        "single run, else in the current folder.",
    ),
    y: str | None = options.METRIC,
    threshold: float | None = options.THRESHOLD,
    center: str = options.CENTER,
    group: str | None = options.GROUP,
    filter: list[str] = options.FILTER,
    tag: list[str] = options.TAGGED,
    episodes: int = options.option(
        "--episodes N",
        "Episodes of each seed. 0 loads no policies: no films, no JAX.",
        default=50,
        min=0,
    ),
    inspect: bool = options.flag(
        "--inspect", "Show the next update of a run of each group."
    ),
    best: bool = options.BEST,
    seed: int = options.SEED,
    open_: bool = options.flag("--open", "Open the page in the browser."),
    quiet: bool = options.QUIET,
    trust: bool | None = options.TRUST,
) -> None:
    """Write an HTML page about runs: charts, films, provenance.

    The page shows results with intervals over seeds, learning curves, episodes, the
    metrics of updates, recipes and their differences. It works offline.
    """
    if episodes or inspect:
        thread_layout.apply_for_policy(runs[0])
    report_phase = (lambda phase: None) if quiet else output.print_message
    file = options.call(rlcli.report, locals(), report_phase=report_phase)
    output.print_data(file)
    if open_:
        import webbrowser  # here, to keep `--help` fast

        webbrowser.open(file.absolute().as_uri())
