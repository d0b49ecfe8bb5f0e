"""Plot: learning curves of runs; the function behind `rlcli plot`."""

import base64
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.quoting import quote_html
from rlcli.results.chart import ALL_ENVIRONMENTS
from rlcli.results.checks import check_choice, check_style, check_threshold
from rlcli.results.groups import find_members, group_members
from rlcli.runs.files import check_output, write_output
from rlcli.runs.result import Result

AXES = ("steps", "seconds", "updates")
CENTERS = ("mean", "iqm")


class Curves(Result):
    """The learning curves of runs, which a notebook shows as a figure.

    Attributes: `x` and `y` are the names of the axes, and `curves` have `label`,
    `environment`, `runs`, `seeds`, and the numbers `x`, `y`, `low` and `high`, the
    limits of the interval over seeds, or None.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """A figure, or the chart of the terminal where matplotlib is not installed."""
        from rlcli.results import chart, figure

        if figure.has_library():
            image = base64.b64encode(figure.draw_bytes(self, ".png")).decode()
            return f'<img src="data:image/png;base64,{image}" style="max-width: 100%">'
        return f"<pre>{quote_html(chart.draw_chart(self, 80).plain)}</pre>"


def plot(
    runs: str | Path | Sequence[str | Path],
    *,
    x: str = "steps",
    y: str | None = None,
    threshold: float | None = None,
    center: str = "mean",
    group: str | None = None,
    filter: Sequence[str] = (),
    tag: Sequence[str] = (),
    reference: Sequence[str] = (),
    output: str | Path | None = None,
    width: str | None = None,
    serif: bool = False,
) -> Curves:
    """Returns the learning curves of runs, and writes them to a file if `output`.

    The seeds of all runs of a group in an environment are one curve: their mean or IQM,
    with the 95 % bootstrap interval over seeds at each point, which a single seed does
    not have. A figure has a panel for each environment.

    Args:
        runs: run folders, or folders with runs.
        x: `steps` of the environment, `seconds` of training or `updates`, per seed.
        y: a metric of `metrics.jsonl`, such as `loss` or `evaluation.length`. By
            default the return of evaluations, or without them the mean return in
            training, `avg_G`.
        threshold: a value of y; each curve has the first x at which it crosses it.
        center: `mean` or `iqm` over seeds.
        group: `recipe`, `run`, `cell`, or an option or field by which runs are grouped,
            such as `name` or `updater.name`.
        filter: only runs with this `KEY=VALUE`, as for `rlcli.runs`.
        tag: only runs with all these tags.
        reference: the returns that become the scores 0 and 1, as for `rlcli.compare`.
        output: a `.png`, `.svg` or `.pdf` file; requires the extra `plot`.
        width: of the figure, for a paper: `column` (3.25 inches) or `page` (6.75).
        serif: whether its font has serifs.
    """
    check_choice("x", x, AXES)
    check_choice("center", center, CENTERS)
    check_threshold(threshold)
    if output is not None:
        from rlcli.results import figure  # here: imports matplotlib

        check_output(Path(output), "a figure", figure.FORMATS)
        figure.check_library()
    style = check_style(width, serif, output)
    from rlcli.results.curves import X_FIELDS, CurveReader

    notes: list[str] = []
    members = find_members(runs, notes, filter, tag)
    groups = group_members(members, group)
    reader = CurveReader(members, y, notes, more=X_FIELDS[x])
    result = Curves(
        {
            "x": x,
            "y": reader.metric,
            "center": center,
            "threshold": threshold,
            "curves": [*_curves(reader, groups, x, center, threshold)],
            "overall": _overall(reader, groups, x, reference),
            "notes": [*dict.fromkeys(notes)],
        }
    )
    if output is not None:
        suffix = Path(output).suffix.lower()
        write_output(Path(output), figure.draw_bytes(result, suffix, style))
    return result


def _curves(
    reader: Any, groups: Sequence[Any], x: str, center: str, threshold: float | None
) -> Iterator[dict[str, Any]]:
    """The data of each group in each environment where it has any."""
    from rlcli.results.curves import find_crossing, make_curve

    members = (member for group in groups for member in group.members)
    environments = dict.fromkeys(member.environment for member in members)
    found = False
    for environment, group in itertools.product(environments, groups):
        seeds = reader.read_seeds(group.within(environment), reader.metric, x)
        curve = make_curve(group.label, seeds, center, reader.notes)
        if curve is None:
            continue
        found = True
        more = {}
        if threshold is not None:
            more["crossing"] = find_crossing(curve, threshold)
        yield _as_data(curve, environment) | more
    if not found:
        raise RlcliError(
            f"no run has a curve of {quote(reader.metric)}", "; ".join(reader.notes)
        )


def _as_data(curve: Any, environment: str | None) -> dict[str, Any]:
    return {
        "label": curve.label,
        "environment": environment,
        "runs": [str(run) for run in curve.runs],
        "seeds": curve.seeds,
        "x": curve.x.tolist(),
        "y": curve.y.tolist(),
        "low": None if curve.low is None else curve.low.tolist(),
        "high": None if curve.high is None else curve.high.tolist(),
    }


def _overall(
    reader: Any, groups: Sequence[Any], x: str, reference: Sequence[str]
) -> dict[str, Any] | None:
    """What `rlcli.compare` has over several environments, and its `curves`.

    None for a single environment, or without references.
    """
    from rlcli.results import comparison
    from rlcli.results.curves import make_overall_curve
    from rlcli.results.references import Reference, note_unused, parse_references

    given, notes, metric = parse_references(reference), reader.notes, reader.metric
    members = [member for group in groups for member in group.members]
    notes += note_unused(given, members)
    environments = dict.fromkeys(m.environment for m in members if m.environment)
    collect = comparison.collect_samples
    samples = {name: collect(reader, groups, name) for name in environments}
    samples = {name: each for name, each in samples.items() if each}
    if len(samples) < 2:
        return None
    overall = comparison.compare_overall(samples, metric, given, notes)
    if overall is None:
        return None
    scales = overall["normalization"].items()
    references = {name: Reference(*pair) for name, pair in scales}
    curves = []
    for label in (row["group"] for row in overall["groups"]):
        (group,) = (each for each in groups if each.label == label)
        scores = [
            [
                seed._replace(y=references[name].normalize(seed.y))
                for seed in reader.read_seeds(group.within(name), metric, x)
            ]
            for name in samples
        ]
        if all(scores) and (curve := make_overall_curve(label, scores, notes)):
            curves.append(_as_data(curve, ALL_ENVIRONMENTS))
    return {**overall, "curves": curves}
