"""Comparison tables: a comparison in the terminal, in Markdown or in HTML."""

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from rlcli.quoting import quote_html, quote_latex, quote_markdown
from rlcli.results.chart import ALL_ENVIRONMENTS, Data
from rlcli.runs.files import to_json, write_output
from rlcli.runs.formatting import NOTHING, format_number
from rlcli.runs.metric_labels import STATISTICS, choose_best, label_metric
from rlcli.runs.result import Table, html_lines, quote_rows, width_of

_ESTIMATE = re.compile(r"[-+.,\d]+(e-?\d+)?( \[.*\])?")
_LONGEST_TITLE = 60  # characters of the names of groups in a title
_SHOWN_SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of a performance profile
_RESULTS = {
    "last": "the last value of each seed",
    "best": "the best value of each seed, a maximum that is biased upwards",
    "auc": "the mean over training of each seed (area under the curve)",
}
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font-family:sans-serif;margin:2em}"
    "h1{font-size:1.5em}h2{font-size:1.1em}"
    "table{border-collapse:collapse;margin-bottom:1em;display:block;overflow-x:auto}"
    "th,td{padding:.3em .8em;text-align:right;white-space:nowrap}"
    "th,td{border-bottom:1px solid #8888}"
    "th:first-child,td:first-child{text-align:left}"
)


def write_comparison(data: Data, path: Path) -> None:
    """Writes the tables of a comparison in the format of the file's name."""
    formats = {
        ".md": as_markdown,
        ".tex": as_latex,
        ".csv": as_csv,
        ".html": as_html,
        ".json": lambda data: to_json(data, indent=2) + "\n",
    }
    write_output(path, formats[path.suffix.lower()](data).encode())


def name_comparison(data: Data) -> str:
    """What is compared: `dqn and ppo in CartPole-v1: return, evaluation`."""
    groups = [row["group"] for each in data["environments"] for row in each["groups"]]
    environments = [each["environment"] for each in data["environments"]]
    return f"{name_groups(groups, environments)}: {label_metric(data['y'])}"


def name_groups(labels: Sequence[str], environments: Sequence[str]) -> str:
    """Groups in environments, in words, or how many of them where these are many."""
    texts = []
    for names, kind in ((labels, "groups"), (environments, "environments")):
        names = [*dict.fromkeys(names)]
        is_short = len(names) == 1 or sum(map(len, names)) <= _LONGEST_TITLE
        text = " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])
        texts.append(text if is_short else f"{len(names)} {kind}")
    return " in ".join(filter(None, texts))


def describe_comparison(data: Data, place: str = "in brackets") -> str:
    """What the numbers are, in a sentence; `place` is where their intervals are."""
    return (
        f"{label_metric(data['y'])}: {_RESULTS[data['result']]}; {place} 95 % "
        f"bootstrap intervals over seeds ({data['resamples']:,} resamples)"
    )


def tables(data: Data) -> Iterator[Table]:
    """The tables of a comparison."""
    label, best = label_metric(data["y"]), choose_best(data["y"])
    for each in data["environments"]:
        place = f"{each['environment']}: {label}"
        better = dict.fromkeys(("mean", "median", "iqm"), best)
        yield _estimate_table(each["groups"], place, better)
        if data["threshold"] is not None:
            yield _threshold_table(each["groups"], place, data["threshold"])
        yield from _improvement_table(each["improvement"], place, best)
    if len(data["environments"]) > 1:
        yield _environment_table(data["environments"], label, best)
    overall = data["overall"]
    if overall is None:
        return
    scales = ", ".join(
        f"{environment} {low:g} to {high:g}"
        for environment, (low, high) in overall["normalization"].items()
    )
    better = {"mean": max, "median": max, "iqm": max, "optimality_gap": min}
    title = f"all environments: {label}, normalized by {scales}"
    yield _estimate_table(overall["groups"], title, better)
    yield Table(
        "performance profile: fraction of seeds with a score above",
        ["group", *(f"{score:g}" for score in _SHOWN_SCORES)],
        [[row["group"], *_profile_cells(row["profile"])] for row in overall["groups"]],
    )
    yield from _improvement_table(overall["improvement"], ALL_ENVIRONMENTS, max)


_GROUP_COLUMNS = ("group", "first", "second")  # their cells are labels of groups


def fit(
    found: Sequence[Table], width: int
) -> tuple[Mapping[str, str], Sequence[Table]]:
    """The tables with letters instead of groups if one is too wide, and the letters.

    Where a table is still too wide, its intervals are below the numbers.
    """
    if all(width_of(table) <= width for table in found):
        return {}, found
    labels = dict.fromkeys(
        row[0]
        for table in found
        for row in table.rows
        if table.header[0] in _GROUP_COLUMNS
    )
    letters = dict(zip(labels, name_letters(), strict=False))
    lettered = [
        table._replace(
            header=[letters.get(cell, cell) for cell in table.header],
            rows=[
                [
                    letters.get(cell, cell) if column in _GROUP_COLUMNS else cell
                    for column, cell in zip(table.header, row, strict=True)
                ]
                for row in table.rows
            ],
        )
        for table in found
    ]
    for index, table in enumerate(lettered):
        if width_of(table) > width:
            rows = [[cell.replace(" [", "\n[") for cell in row] for row in table.rows]
            lettered[index] = table._replace(rows=rows)
    return letters, lettered


def as_markdown(data: Data) -> str:
    """The tables in Markdown."""
    lines = [f"# {quote_markdown(name_comparison(data))}", ""]
    lines += [quote_markdown(describe_comparison(data))]
    for table in tables(data):
        lines += ["", *markdown_lines(table)]
    if data["notes"]:
        lines += ["", *(f"- {quote_markdown(note)}" for note in data["notes"])]
    return "\n".join(lines) + "\n"


def markdown_lines(table: Table) -> list[str]:
    """The lines of a table in Markdown, with its title."""
    header, *cells = quote_rows(table, quote_markdown, "**%s**")
    dashes = ["---", *["---:"] * (len(table.header) - 1)]
    rows = [f"| {' | '.join(row)} |" for row in (header, dashes, *cells)]
    return [f"**{quote_markdown(table.title)}**", "", *rows]


def as_latex(data: Data) -> str:
    """The tables in LaTeX, for the package `booktabs`; the best estimates are bold."""
    lines = [
        rf"% {quote_latex(name_comparison(data))}",
        rf"% {quote_latex(describe_comparison(data))}",
        r"% \usepackage{booktabs}",
    ]
    for table in tables(data):
        header, *rows = quote_rows(table, _quote_latex_cell, r"\textbf{%s}")
        lines += [
            "",
            rf"% {quote_latex(table.title)}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            rf"{' & '.join(header)} \\",
            r"\midrule",
            *(rf"{' & '.join(row)} \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    return "\n".join(lines) + "\n"


def _quote_latex_cell(text: str) -> str:
    """A cell in LaTeX; the signs of an estimate are minus signs, not hyphens."""
    quoted = quote_latex(text)
    return re.sub(r"-(?=\d)", "$-$", quoted) if _ESTIMATE.fullmatch(text) else quoted


def as_csv(data: Data) -> str:
    """A line for each estimate, with the limits of its interval, empty for one seed.

    `statistic` is `mean`, `median`, `iqm` or `optimality_gap`; `improvement`, the
    probability that a seed of `group` is better than one of the group `second`; or
    `profile`, the fraction of seeds above `score`. `metric` and `result` say of what:
    of seeds' `last` values, for example.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    first = ["environment", "metric", "result", "group", "seeds"]
    last = ["statistic", "second", "score", "value", "low", "high"]
    writer.writerow([*first, *last])
    what = label_metric(data["y"]), data["result"]
    places = [*data["environments"]]
    if data["overall"] is not None:
        places.append({"environment": ALL_ENVIRONMENTS, **data["overall"]})
    for place in places:
        seeds = {group["group"]: _count_seeds(group) for group in place["groups"]}
        for group, *kind, estimate in _list_estimates(place):
            numbers = estimate["value"], *(estimate["ci95"] or (None, None))
            row = [place["environment"], *what, group, seeds[group], *kind, *numbers]
            writer.writerow(row)
    return file.getvalue()


def _list_estimates(place: Data) -> Iterator[tuple[str, str, str, str, Data]]:
    """Group, statistic, second group, score and estimate, as in `as_csv`."""
    for group in place["groups"]:
        for name in STATISTICS:
            if name in group:
                yield group["group"], name, "", "", group[name]
        if "profile" in group:
            for score, above in _profile_estimates(group["profile"]):
                yield group["group"], "profile", "", f"{score:g}", above
    for pair in place["improvement"]:
        yield pair["first"], "improvement", pair["second"], "", pair


def _profile_estimates(profile: Data) -> Iterator[tuple[float, Data]]:
    """The fraction of seeds above each score, with its interval."""
    fractions, low, high = (profile[name] for name in ("fraction", "low", "high"))
    for index, score in enumerate(profile["score"]):
        ci95 = None if low is None else (low[index], high[index])
        yield score, {"value": fractions[index], "ci95": ci95}


def as_html(data: Data) -> str:
    """The tables as a page without references to other files."""
    title = quote_html(name_comparison(data))
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>",
        f"<p>{quote_html(describe_comparison(data))}</p>",
    ]
    for table in tables(data):
        parts.append(f"<h2>{quote_html(table.title)}</h2>")
        parts += html_lines(table)
    parts += [f"<p>{quote_html(note)}</p>" for note in data["notes"]]
    return "\n".join([*parts, "</html>", ""])


def _estimate_table(
    groups: Sequence[Data], title: str, better: Mapping[Any, Callable[..., Any] | None]
) -> Table:
    """The estimates that `better` names, each with its `max`, `min` or None."""
    rows, best = [], []
    for group in groups:
        estimates = [_format_estimate(group[name]) for name in better]
        rows.append([group["group"], str(_count_seeds(group)), *estimates])
    for column, (name, choose) in enumerate(better.items(), 2):
        values = [group[name]["value"] for group in groups]
        best += [(row, column) for row in _find_best(values, choose)]
    header = [STATISTICS[name] for name in better]
    return Table(title, ["group", "seeds", *header], rows, best)


def _environment_table(
    environments: Sequence[Data], label: str, better: Callable | None
) -> Table:
    """The IQM of each group, with a row for each environment."""
    groups = [*dict.fromkeys(g["group"] for e in environments for g in e["groups"])]
    rows, best = [], []
    for each in environments:
        found = {group["group"]: group["iqm"] for group in each["groups"]}
        cells = [_format_estimate(found[g]) if g in found else NOTHING for g in groups]
        values = [found[g]["value"] if g in found else None for g in groups]
        best += [(len(rows), 1 + place) for place in _find_best(values, better)]
        rows.append([each["environment"], *cells])
    return Table(
        f"all environments: {label}, IQM", ["environment", *groups], rows, best
    )


def _find_best(
    values: Sequence[float | None], choose: Callable[..., Any] | None
) -> list[int]:
    """The places of the best of several values; what looks equal is as good."""
    known = [value for value in values if value is not None and value == value]
    if choose is None or len(known) < 2:
        return []
    shown = format_number(choose(known))
    return [i for i, value in enumerate(values) if format_number(value) == shown]


def _count_seeds(group: Data) -> int:
    """The seeds of a group, in all environments."""
    seeds = group["seeds"]
    return seeds if isinstance(seeds, int) else sum(seeds)


def _threshold_table(groups: Sequence[Data], place: str, threshold: float) -> Table:
    rows = []
    for group in groups:
        steps, seconds = group["steps_to_threshold"], group["seconds_to_threshold"]
        medians = [format_number(each["median"]) for each in (steps, seconds)]
        reached = f"{steps['reached']} of {steps['seeds']}"
        rows.append([group["group"], *medians, reached])
    return Table(
        f"{place}, until {threshold:g} is reached: median over seeds",
        ["group", "steps", "seconds", "seeds that reach it"],
        rows,
    )


def _improvement_table(
    pairs: Sequence[Data], place: str, best: Callable | None
) -> Iterator[Table]:
    what = "improvement" if best else "a higher value"
    if pairs:
        yield Table(
            f"{place}, probability of {what}: first over second",
            ["first", "second", "probability"],
            [[pair["first"], pair["second"], _format_estimate(pair)] for pair in pairs],
        )


def _profile_cells(profile: Data) -> Iterator[str]:
    estimates = dict(_profile_estimates(profile))
    return (_format_estimate(estimates[score]) for score in _SHOWN_SCORES)


def _format_estimate(estimate: Data) -> str:
    """`481 [472, 490]`, or `481 [n/a: 1 seed]`."""
    value = format_number(estimate["value"])
    if value == NOTHING:
        return value
    if estimate["ci95"] is None:
        return f"{value} [n/a: 1 seed]"
    low, high = map(format_number, estimate["ci95"])
    return f"{value} [{low}, {high}]"


def name_letters() -> Iterator[str]:
    """A, B, …, Z, AA, AB, …"""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(ascii_uppercase, repeat=length))
