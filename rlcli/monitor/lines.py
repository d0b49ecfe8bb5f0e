"""Lines: formats metrics and evaluations as lines of text."""

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from rlcli.errors import fit_line
from rlcli.runs.formatting import format_number, format_number_of
from rlcli.runs.metric_labels import label_metric
from rlcli.runs.metrics import CLOCK_FIELDS
from rlcli.runs.statistics import summary

Row = Mapping[str, Any]

HEAD = "[TrainMonitor|INFO]"
LEADING_FIELDS = ("ep", "T", "G", "avg_r", "avg_G", "t", "dt")  # as in coax
LEGEND = " · ".join(f"{name} {label_metric(name)}" for name in LEADING_FIELDS)
MAX_LINE = 160  # characters of a row; all of its numbers are in `metrics.jsonl`
_SHORT = {"steps_per_second": "steps/s", "updates_per_second": "updates/s"}
COUNTS = frozenset(("ep", "T", "t", "updates"))
NOT_METRICS = frozenset(
    (*LEADING_FIELDS, *CLOCK_FIELDS, "seed", "run", "evaluation", "frozen")
)


def format_row(row: Row) -> str:
    """Formats a row of metrics as coax does: `[TrainMonitor|INFO] ep: 102, …`.

    Leaves out the last metrics where the line would be too long.
    """
    row = drop_details(row)
    first = [(name, row[name]) for name in LEADING_FIELDS if row.get(name) is not None]
    rest = [
        (name, value)
        for name, value in row.items()
        if name not in NOT_METRICS and isinstance(value, (Real, str))
    ]
    rest.sort(key=lambda pair: "success" not in pair[0])
    rates = [(short, row[n]) for n, short in _SHORT.items() if row.get(n)]
    frozen_pair = [("frozen", row["frozen"])] if row.get("frozen") else []
    first, rest, last = (
        [f"{name}: {_format_value(name, x)}" for name, x in pairs]
        for pairs in (first, rest, [*rates, *frozen_pair])
    )
    line = ", ".join([*first, *rest, *last])
    while rest and len(HEAD) + 1 + len(line) > MAX_LINE:
        rest.pop()
        line = ", ".join([*first, *rest, "…", *last])
    return f"{HEAD} {fit_line(line)}"


def drop_details(row: Row) -> Row:
    """The row without the totals and maxima of the numbers in `info`."""
    details = {f"{prefix}{name}" for name in row for prefix in ("total_", "max_")}
    return {name: value for name, value in row.items() if name not in details}


def group_by_point(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each log point, in the order of the rows."""
    groups = itertools.groupby(rows, key=operator.itemgetter("T"))
    return [[*group] for _, group in groups]


def merge_rows(rows: Sequence[Row]) -> Row:
    """Merges the rows of several seeds: means over the seeds that are not frozen.

    Adds the number of seeds, the minimum and maximum of `avg_G`, and the number of
    frozen seeds. A single row is returned unchanged. The rows may also be those of
    runs, with the field `run`.
    """
    if len(rows) == 1:
        return rows[0]
    alive = [row for row in rows if not row.get("frozen")] or list(rows)
    names = dict.fromkeys(name for row in alive for name in row)
    mean: dict[str, Any] = {}
    for name in names:
        values = finite_values(row.get(name) for row in alive)
        if values and name not in ("seed", "run", "frozen"):
            average = sum(values) / len(values)
            mean[name] = round(average) if name in COUNTS else average
    mean[f"{row_kind(rows)}s"] = len(rows)
    averages = finite_values(row.get("avg_G") for row in alive)
    if averages:
        mean |= {"min_avg_G": min(averages), "max_avg_G": max(averages)}
    return mean | {"frozen": len([row for row in rows if row.get("frozen")])}


def merge_evaluation(evaluation: Sequence[Row]) -> dict[str, Any]:
    """Merges the evaluation of several seeds: the means of all numbers."""
    results = [row["evaluation"] for row in evaluation]
    means = {
        name: sum(result[name] for result in results) / len(results)
        for name in results[0]
    }
    means["episodes"] = results[0]["episodes"]
    return {"T": evaluation[0]["T"], "evaluation": means}


def row_kind(rows: Sequence[Row]) -> str:
    """The kind of rows: `seed` or `run`."""
    return "run" if "run" in rows[0] else "seed"


def name_of(row: Row) -> int | str:
    """The seed of a row, or its run if runs are trained together."""
    return row["run"] if "run" in row else row["seed"]


def format_evaluation(evaluation: Sequence[Row]) -> str:
    """Formats an evaluation: mean and range of one seed, or statistics over seeds.

    The interval of one seed is that of its mean over episodes, 1.96 std / √episodes;
    that of several seeds is the bootstrap interval of the IQM over seeds. Frozen seeds
    are included and reported: without them, results would look better than they are.
    """
    results = [row["evaluation"] for row in evaluation]
    first = results[0]
    frozen = len([row for row in evaluation if row.get("frozen")])
    end = f"at step {evaluation[0]['T']:,}"
    if frozen:
        end += ", frozen" if len(results) == 1 else f", {frozen} frozen included"
    means = merge_evaluation(evaluation)["evaluation"]
    successes = [name for name in means if "success" in name]
    start = fit_line(
        "".join(f"{name} {format_number(means[name])}, " for name in successes)
    )
    if len(results) == 1:
        return f"{start}{_format_episodes(first)} {end}"
    total = summary([result["mean"] for result in results])
    low, high = (format_number(bound) for bound in total["ci95"])
    return (
        f"{start}G {format_number(total['mean'])}, IQM "
        f"{format_number(total['iqm'])} (95 % interval {low} to {high} over "
        f"{len(results)} {row_kind(evaluation)}s), "
        f"{format_number_of(first['episodes'], 'episode')} {end}"
    )


def _format_episodes(result: Mapping[str, Any]) -> str:
    """Formats the returns of one seed; a single episode has no interval."""
    mean, episodes = format_number(result["mean"]), result["episodes"]
    if episodes == 1:
        return f"G {mean}, 1 episode"
    error = format_number(1.96 * result["std"] / math.sqrt(episodes))
    low, high = format_number(result["min"]), format_number(result["max"])
    return f"G {mean} ± {error} (95 % over {episodes} episodes), {low} to {high}"


def finite_values(values: Iterable[Any]) -> list[float]:
    """The finite numbers among the values."""
    return [float(x) for x in values if isinstance(x, Real) and math.isfinite(x)]


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,d}"
    if not isinstance(value, Real):
        return str(value)
    if name == "dt":
        return f"{value:.3f}ms"
    return f"{value:,.0f}" if name in _SHORT.values() else f"{value:.3g}"
