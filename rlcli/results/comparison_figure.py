"""Comparison figure: estimates with intervals, and performance profiles."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlcli.quoting import quote_mathtext
from rlcli.results import comparison_tables, figure, overall_panels
from rlcli.results.chart import Data
from rlcli.runs.files import write_output
from rlcli.runs.metric_labels import STATISTICS, label_metric

_STATISTICS = ("mean", "median", "iqm")
_GAP = "optimality_gap"  # of normalized scores
_LABELS = {**STATISTICS, _GAP: f"{STATISTICS[_GAP]}\n(less is better)"}
_ROW, _PROFILE = 0.9, 2.8  # inches beside the groups of a row, and of the profile
_LETTERS = 18  # of the smallest size on an inch, at least
_NAME = 30  # characters of a line of a group's name


# Title, statistics and groups of a row of panels, one for each statistic.
_Row = tuple[str, Sequence[str], Sequence[Data]]


def draw_comparison(data: Data, path: Path, style: figure.FigureStyle) -> None:
    """Writes the statistics of each environment, and those of all of them."""
    statistics = ("iqm",) if style.width == "column" else _STATISTICS
    rows = [*_rows(data, statistics)]
    labels = dict.fromkeys(each["group"] for *_, groups in rows for each in groups)
    styles = {label: figure.choose_style(i) for i, label in enumerate(labels)}
    width = figure.WIDTHS.get(style.width or "", 8)
    heights = [
        _ROW + figure.LINE * sum(0.5 + len(_wrap(each["group"])) for each in groups)
        for *_, groups in rows
    ]
    if data["overall"] is not None:
        *_, lines = figure.lay_out_legend([*styles], width)
        heights.append(_PROFILE + figure.LINE * max(lines, len(styles)))
    scale = 0.8 if style.width else 1  # its letters are small
    content = figure.make_bytes(
        path.suffix.lower(),
        lambda canvas: _fill(canvas, data, rows, heights, styles),
        size=(width, scale * sum(heights)),
        style=style,
    )
    write_output(path, content)


def _wrap(name: str) -> list[str]:
    """The name of a group in lines, so that it leaves room for the panels."""
    return textwrap.wrap(name, _NAME) or [name]


def _rows(data: Data, statistics: Sequence[str] = _STATISTICS) -> Iterator[_Row]:
    for each in data["environments"]:
        title = f"{each['environment']}: {label_metric(data['y'])}"
        yield title, statistics, each["groups"]
    if data["overall"] is not None:
        title = f"all environments: {label_metric(data['y'])}, normalized"
        yield title, (*statistics, _GAP), data["overall"]["groups"]


def _fill(
    canvas: Any,
    data: Data,
    rows: Sequence[_Row],
    heights: Sequence[float],
    styles: overall_panels.Styles,
) -> None:
    # With a layout of their own: rows have three panels, or four.
    places = canvas.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)
    for (place,), (title, statistics, groups) in zip(places, rows, strict=False):
        panels = place.subplots(1, len(statistics), squeeze=False)[0]
        for axes, name in zip(panels, statistics, strict=True):
            unit = _LABELS[name]
            overall_panels.draw_estimates(groups, name, axes, styles, unit=unit)
        _name_groups(panels[0], groups)
        # Of one unit, so a longer interval is a wider one in any of them.
        figure.share_limits(panels[: len({*statistics} - {_GAP})], "x")
        title = quote_mathtext(title)
        place.suptitle(title, x=0.01, horizontalalignment="left", fontsize="medium")
    if (overall := data["overall"]) is not None:
        (place,), found = places[-1], overall_panels.list_panels(overall)
        names = STATISTICS.values()  # the estimates have a row of their own
        shown = {title: each for title, each in found.items() if title not in names}
        panels = place.subplots(1, len(shown), squeeze=False)[0]
        for axes, (title, draw) in zip(panels, shown.items(), strict=True):
            draw(axes, styles)
            axes.set_title(title, loc="left", fontsize="medium")
        figure.add_legend(place, styles, loc="outside lower center")
    text = comparison_tables.describe_comparison(data, "as lines")
    text = textwrap.fill(quote_mathtext(text), int(_LETTERS * canvas.get_figwidth()))
    canvas.supxlabel(text, fontsize="x-small")


def _name_groups(axes: Any, groups: Sequence[Data]) -> None:
    names = [group["group"] for group in groups]
    labels = ["\n".join(map(quote_mathtext, _wrap(name))) for name in names]
    axes.set_yticks(range(len(names)), labels, fontsize="small")
    axes.tick_params(axis="y", length=0)
