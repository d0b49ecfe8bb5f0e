"""Comparison figure: estimates with intervals, and performance profiles."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.quoting import quote_mathtext
from rlcli.results import comparison_tables, figure
from rlcli.runs.metric_labels import label_metric

_STATISTICS = {"mean": "mean", "median": "median", "iqm": "IQM"}
_GAP = {"optimality_gap": "optimality gap\n(less is better)"}  # of normalized scores
_ROW, _PROFILE = 0.9, 2.8  # inches beside the groups of a row, and of the profile
_LETTERS = 18  # of the smallest size on an inch, at least
_NAME = 30  # characters of a line of a group's name


class _Row(NamedTuple):
    """A row of panels, one for each statistic."""

    title: str
    statistics: Mapping[str, str]  # by the name in the data: the name in the figure
    groups: Sequence[Mapping[str, Any]]


def draw_comparison(
    data: Mapping[str, Any], path: Path, style: figure.FigureStyle
) -> None:
    """Writes the statistics of each environment, and those of all of them."""
    statistics = {"iqm": "IQM"} if style.width == "column" else _STATISTICS
    rows = list(_rows(data, statistics))
    labels = dict.fromkeys(group["group"] for row in rows for group in row.groups)
    colors = {label: f"C{index}" for index, label in enumerate(labels)}
    heights = [
        _ROW + figure.LINE * sum(0.5 + len(_wrap(each["group"])) for each in row.groups)
        for row in rows
    ]
    if data["overall"] is not None:
        heights += [_PROFILE + figure.LINE * len(colors)]
    scale = 0.8 if style.width else 1  # its letters are small
    figure.save(
        path,
        lambda canvas: _fill(canvas, data, rows, heights, colors),
        size=(figure.WIDTHS.get(style.width or "", 8), scale * sum(heights)),
        style=style,
    )


def _wrap(name: str) -> list[str]:
    """The name of a group in lines, so that it leaves room for the panels."""
    return textwrap.wrap(name, _NAME) or [name]


def _rows(
    data: Mapping[str, Any], statistics: Mapping[str, str] = _STATISTICS
) -> Iterator[_Row]:
    for each in data["environments"]:
        title = f"{each['environment']}: {label_metric(data['y'])}"
        yield _Row(title, statistics, each["groups"])
    if data["overall"] is not None:
        title = f"all environments: {label_metric(data['y'])}, normalized"
        yield _Row(title, {**statistics, **_GAP}, data["overall"]["groups"])


def _fill(
    canvas: Any,
    data: Mapping[str, Any],
    rows: Sequence[_Row],
    heights: Sequence[float],
    colors: Mapping[str, str],
) -> None:
    # With a layout of their own: rows have three panels, or four.
    places = canvas.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)
    for (place,), row in zip(places, rows, strict=False):
        panels = place.subplots(1, len(row.statistics), squeeze=False)[0]
        for axes, (name, label) in zip(panels, row.statistics.items(), strict=True):
            _draw_estimates(axes, row.groups, name, colors)
            axes.set_xlabel(label, fontsize="small")
        _name_groups(panels[0], row.groups)
        # Of one unit, so a longer interval is a wider one in any of them.
        figure.share_limits(panels[: len(row.statistics.keys() - _GAP.keys())], "x")
        title = quote_mathtext(row.title)
        place.suptitle(title, x=0.01, horizontalalignment="left", fontsize="medium")
    if (overall := data["overall"]) is not None:
        (place,) = places[-1]
        _draw_profiles(place.subplots(), overall["groups"], colors)
        figure.add_legend(place, colors, loc="outside lower center")
    text = comparison_tables.describe_comparison(data, "as lines")
    text = textwrap.fill(quote_mathtext(text), int(_LETTERS * canvas.get_figwidth()))
    canvas.supxlabel(text, fontsize="x-small")


def _draw_estimates(
    axes: Any, groups: Sequence[Mapping[str, Any]], name: str, colors: Mapping[str, str]
) -> None:
    """A point and the interval of each group, below each other."""
    for index, group in enumerate(groups):
        color, estimate = colors[group["group"]], group[name]
        if estimate["ci95"] is not None:
            ends = estimate["ci95"], [index, index]
            axes.plot(*ends, color=color, linewidth=3, solid_capstyle="butt")
        axes.plot(estimate["value"], index, color=color, marker="o", markersize=7)
    axes.set_ylim(len(groups) - 0.5, -0.5)  # the first group at the top
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize="small")
    axes.margins(x=0.1)
    axes.grid(axis="x", alpha=0.3)


def _name_groups(axes: Any, groups: Sequence[Mapping[str, Any]]) -> None:
    names = [group["group"] for group in groups]
    labels = ["\n".join(map(quote_mathtext, _wrap(name))) for name in names]
    axes.set_yticks(range(len(names)), labels, fontsize="small")
    axes.tick_params(axis="y", length=0)


def _draw_profiles(
    axes: Any, groups: Sequence[Mapping[str, Any]], colors: Mapping[str, str]
) -> None:
    """The fraction of seeds above each score, with its interval."""
    for group in groups:
        profile, color = group["profile"], colors[group["group"]]
        axes.plot(profile["score"], profile["fraction"], color=color)
        if profile["low"] is not None:
            bounds = profile["low"], profile["high"]
            axes.fill_between(
                profile["score"], *bounds, color=color, alpha=0.2, linewidth=0
            )
    axes.set_title("performance profile", loc="left", fontsize="medium")
    axes.set_xlabel("normalized score", fontsize="small")
    axes.set_ylabel("fraction of seeds above", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.margins(x=0.01)
    axes.grid(alpha=0.3)
