"""Compare: statistics of groups of runs; the function behind `rlcli compare`."""

from collections.abc import Sequence
from pathlib import Path

from rlcli.errors import RlcliError
from rlcli.results import figure
from rlcli.results.checks import check_choice, check_style, check_threshold
from rlcli.results.groups import find_members
from rlcli.runs.files import check_output
from rlcli.runs.result import Result

RESULTS = ("last", "best", "auc")
FORMATS = (".md", ".tex", ".csv", ".html", ".json", *figure.FORMATS)


def compare(
    runs: str | Path | Sequence[str | Path],
    *,
    result: str = "last",
    y: str | None = None,
    threshold: float | None = None,
    group: str | None = None,
    filter: Sequence[str] = (),
    tag: Sequence[str] = (),
    reference: Sequence[str] = (),
    allow_differences: bool = False,
    output: str | Path | None = None,
    width: str | None = None,
    serif: bool = False,
) -> Result:
    """Compares groups of runs in each environment, and over several environments.

    Means, medians and interquartile means (IQM) over seeds have 95 % bootstrap
    intervals, which are None if a group has a single seed. Runs that were not made in
    the same way are refused: other steps, episodes of evaluations, or options of the
    environment.

    Args:
        runs: run folders, or folders with runs.
        result: of a seed: its `last` evaluation, its `best`, or `auc`, the mean over
            all steps between the first and the last (area under the curve).
        y: a metric of `metrics.jsonl`; by default the return of evaluations, or without
            them the mean return in training, `avg_G`.
        threshold: a return; groups have the steps and seconds until a seed reaches it.
        group: `recipe`, `run`, `cell`, or an option or field by which runs are grouped;
            by default `cell` for the runs of a study, else `recipe`. Over
            several environments it has to be one that their recipes share, such as
            `updater.name` or `name`.
        filter: only runs with this `KEY=VALUE`, as for `rlcli.runs`.
        tag: only runs with all these tags.
        reference: `LOW,HIGH`, or `ENVIRONMENT=LOW,HIGH`: the returns that become 0 and
            1 in statistics over several environments. By default those of the study, or
            else, of native environments, those of a random and of a good policy.
        allow_differences: compare runs that were not made in the same way.
        output: a `.md`, `.tex`, `.csv`, `.html` or `.json` file with tables, or a
            `.pdf`, `.svg` or `.png` file: a figure of the estimates, of performance
            profiles, and of the probability of improvement.
        width: of a figure, for a paper: `column` (3.25 inches) or `page` (6.75).
        serif: whether its font has serifs.
    """
    check_choice("result", result, RESULTS)
    check_threshold(threshold)
    style = check_style(width, serif, output)
    # Here: they import NumPy.
    from rlcli.results import comparison, comparison_figure, comparison_tables
    from rlcli.results.references import parse_references

    is_figure = False
    if output is not None:
        check_output(Path(output), "a comparison", FORMATS)
        is_figure = Path(output).suffix.lower() in figure.FORMATS
    if is_figure:
        figure.check_library()
    references = parse_references(reference)
    notes: list[str] = []
    members = find_members(runs, notes, filter, tag)
    data = comparison.compare_members(
        members,
        comparison.ComparisonSettings(
            result, y, threshold, group, references, allow_differences
        ),
        notes,
    )
    if not data["environments"]:
        raise RlcliError("there are no results to compare", "; ".join(notes))
    if is_figure:
        comparison_figure.draw_comparison(data, Path(str(output)), style)
    elif output is not None:
        comparison_tables.write_comparison(data, Path(output))
    return Result(data, comparison_tables.tables)
