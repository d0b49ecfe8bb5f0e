"""Comparison tables: a comparison in the terminal, in Markdown or in HTML."""

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from rlcli.quoting import quote_html, quote_latex, quote_markdown
from rlcli.runs.files import to_json, write_output
from rlcli.runs.formatting import NOTHING, format_number
from rlcli.runs.result_tables import Table, html_lines, width_of

_SHOWN_SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of a performance profile
_RESULTS = {
    "last": "the last value of each seed",
    "best": "the best value of each seed, a maximum that is biased upwards",
    "auc": "the mean over training of each seed (area under the curve)",
}
_STYLE = (
    "body{font-family:sans-serif;margin:2em}"
    "table{border-collapse:collapse;margin-bottom:1em}"
    "th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #ccc}"
    "th:first-child,td:first-child{text-align:left}"
)


def write_comparison(data: Mapping[str, Any], path: Path) -> None:
    """Writes the tables of a comparison in the format of the file's name."""
    formats = {
        ".md": as_markdown,
        ".tex": as_latex,
        ".csv": as_csv,
        ".html": as_html,
        ".json": _as_json,
    }
    write_output(path, formats[path.suffix.lower()](data).encode())


def describe_comparison(data: Mapping[str, Any], place: str = "in brackets") -> str:
    """What the numbers are, in a sentence; `place` is where their intervals are."""
    return (
        f"{data['y']}: {_RESULTS[data['result']]}; {place} 95 % bootstrap "
        f"intervals over seeds ({data['resamples']:,} resamples)"
    )


def tables(data: Mapping[str, Any]) -> Iterator[Table]:
    """The tables of a comparison."""
    for each in data["environments"]:
        yield _environment_table(each)
        if data["threshold"] is not None:
            yield _threshold_table(each, data["threshold"])
        yield from _improvement_table(each["improvement"], each["environment"])
    overall = data["overall"]
    if overall is None:
        return
    scales = ", ".join(
        f"{environment} {low:g} to {high:g}"
        for environment, (low, high) in overall["normalization"].items()
    )
    yield Table(
        f"all environments, scores normalized: {scales}",
        ["group", "mean", "median", "IQM", "optimality gap"],
        [
            [
                row["group"],
                *(
                    _format_estimate(row[name])
                    for name in ("mean", "median", "iqm", "optimality_gap")
                ),
            ]
            for row in overall["groups"]
        ],
        [
            *_find_best(
                overall["groups"],
                {"mean": max, "median": max, "iqm": max, "optimality_gap": min},
                1,
            )
        ],
    )
    yield Table(
        "performance profile: fraction of seeds with a score above",
        ["group", *(f"{score:g}" for score in _SHOWN_SCORES)],
        [[row["group"], *_profile_cells(row["profile"])] for row in overall["groups"]],
    )
    yield from _improvement_table(overall["improvement"], "all environments")


_GROUP_COLUMNS = ("group", "first", "second")  # their cells are labels of groups


def fit(
    found: Sequence[Table], width: int
) -> tuple[Mapping[str, str], Sequence[Table]]:
    """The tables with letters instead of groups if one is too wide, and the letters.

    Where a table is still too wide, its intervals are below the numbers.
    """
    if all(width_of(table) <= width for table in found):
        return {}, found
    labels = dict.fromkeys(row[0] for table in found for row in table.rows)
    letters = dict(zip(labels, name_letters(), strict=False))
    lettered = [
        table._replace(
            rows=[
                [
                    letters.get(cell, cell) if column in _GROUP_COLUMNS else cell
                    for column, cell in zip(table.header, row, strict=True)
                ]
                for row in table.rows
            ]
        )
        for table in found
    ]
    return letters, [
        table if width_of(table) <= width else _stack_intervals(table)
        for table in lettered
    ]


def _stack_intervals(table: Table) -> Table:
    rows = [[cell.replace(" [", "\n[") for cell in row] for row in table.rows]
    return table._replace(rows=rows)


def as_markdown(data: Mapping[str, Any]) -> str:
    """The tables in Markdown."""
    lines = [quote_markdown(describe_comparison(data))]
    for table in tables(data):
        lines += ["", *markdown_lines(table)]
    lines += (
        ["", *(f"- {quote_markdown(note)}" for note in data["notes"])]
        if data["notes"]
        else []
    )
    return "\n".join(lines) + "\n"


def markdown_lines(table: Table) -> list[str]:
    """The lines of a table in Markdown, with its title."""
    header, *cells = (
        [*map(quote_markdown, row)] for row in (table.header, *table.rows)
    )
    dashes = ["---", *["---:"] * (len(table.header) - 1)]
    rows = [f"| {' | '.join(row)} |" for row in (header, dashes, *cells)]
    return [f"**{quote_markdown(table.title)}**", "", *rows]


def as_latex(data: Mapping[str, Any]) -> str:
    """The tables in LaTeX, for the package `booktabs`; the best estimates are bold."""
    lines = [rf"% {quote_latex(describe_comparison(data))}", r"% \usepackage{booktabs}"]
    for table in tables(data):
        header, *rows = (
            [*map(quote_latex, row)] for row in (table.header, *table.rows)
        )
        for row, column in table.best:
            rows[row][column] = rf"\textbf{{{rows[row][column]}}}"
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


def as_csv(data: Mapping[str, Any]) -> str:
    """The estimates, a line for each group in each environment, and over all of them.

    Each estimate has the limits of its interval beside it, empty for a single seed.
    """
    names = ("mean", "median", "iqm", "optimality_gap")
    columns = [f"{name}{limit}" for name in names for limit in ("", "_low", "_high")]
    file = io.StringIO()
    writer = csv.DictWriter(
        file, ["environment", "group", "seeds", *columns], lineterminator="\n"
    )
    writer.writeheader()
    places = [(each["environment"], each["groups"]) for each in data["environments"]]
    if data["overall"] is not None:
        places.append(("all environments", data["overall"]["groups"]))
    for environment, groups in places:
        for group in groups:
            row = {"environment": environment, "group": group["group"]}
            row["seeds"] = group.get("seeds")
            for name in set(names) & group.keys():
                low, high = group[name]["ci95"] or (None, None)
                row |= {
                    name: group[name]["value"],
                    f"{name}_low": low,
                    f"{name}_high": high,
                }
            writer.writerow(row)
    return file.getvalue()


def as_html(data: Mapping[str, Any]) -> str:
    """The tables as a page without references to other files."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Comparison</title>",
        f"<style>{_STYLE}</style><p>{quote_html(describe_comparison(data))}</p>",
    ]
    for table in tables(data):
        parts.append(f"<h2>{quote_html(table.title)}</h2>")
        parts += html_lines(table)
    parts += [f"<p>{quote_html(note)}</p>" for note in data["notes"]]
    return "\n".join([*parts, "</html>", ""])


def _as_json(data: Mapping[str, Any]) -> str:
    return to_json(data, indent=2) + "\n"


def _environment_table(data: Mapping[str, Any]) -> Table:
    names = ("mean", "median", "iqm")
    return Table(
        data["environment"],
        ["group", "seeds", "mean", "median", "IQM"],
        [
            [
                group["group"],
                str(group["seeds"]),
                *(_format_estimate(group[name]) for name in names),
            ]
            for group in data["groups"]
        ],
        [*_find_best(data["groups"], dict.fromkeys(names, max), 2)],
    )


def _find_best(
    groups: Sequence[Mapping[str, Any]], better: Mapping[str, Callable], first: int
) -> Iterator[tuple[int, int]]:
    """The rows with the best estimate of each column, from column `first` on.

    `better` are `max` or `min`, by the names of the estimates.
    """
    for column, (name, choose) in enumerate(better.items(), first):
        values = [group[name]["value"] for group in groups]
        known = [value for value in values if value is not None and value == value]
        for row, value in enumerate(values):
            if len(groups) > 1 and known and value == choose(known):
                yield row, column


def _threshold_table(data: Mapping[str, Any], threshold: float) -> Table:
    rows = []
    for group in data["groups"]:
        steps, seconds = group["steps_to_threshold"], group["seconds_to_threshold"]
        medians = [format_number(each["median"]) for each in (steps, seconds)]
        reached = f"{steps['reached']} of {steps['seeds']}"
        rows.append([group["group"], *medians, reached])
    return Table(
        f"{data['environment']}: until {threshold:g} is reached, median over seeds",
        ["group", "steps", "seconds", "seeds that reach it"],
        rows,
    )


def _improvement_table(
    pairs: Sequence[Mapping[str, Any]], place: str
) -> Iterator[Table]:
    if pairs:
        yield Table(
            f"{place}: probability of improvement, first over second",
            ["first", "second", "probability"],
            [[pair["first"], pair["second"], _format_estimate(pair)] for pair in pairs],
        )


def _profile_cells(profile: Mapping[str, Any]) -> Iterator[str]:
    for score in _SHOWN_SCORES:
        yield format_number(profile["fraction"][profile["score"].index(score)])


def _format_estimate(estimate: Mapping[str, Any]) -> str:
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
