"""Comparison figure: estimates with intervals, and performance profiles."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.quoting import quote_mathtext
from rlcli.results import comparison_tables, figure

_STATISTICS = {"mean": "mean", "median": "median", "iqm": "IQM"}
_GAP = {"optimality_gap": "optimality gap: less is better"}  # of normalized scores
_LINE, _ROW, _PROFILE = 0.22, 0.75, 2.6  # heights of a group, a row and the profile, in
_LONG_LABEL = 24  # characters; longer ones have a line of the legend to themselves


class _Row(NamedTuple):
    """A row of panels, one for each statistic."""

    title: str
    statistics: Mapping[str, str]  # by the name in the data: the name in the figure
    groups: Sequence[Mapping[str, Any]]


def draw_comparison(data: Mapping[str, Any], path: Path) -> None:
    """Writes the statistics of each environment, and those of all of them."""
    rows = list(_rows(data))
    labels = dict.fromkeys(group["group"] for row in rows for group in row.groups)
    colors = {label: f"C{index}" for index, label in enumerate(labels)}
    heights = [_ROW + _LINE * len(row.groups) for row in rows]
    if data["overall"] is not None:
        heights.append(_PROFILE)
    legend = _LINE * len(colors)
    figure.save(
        path,
        lambda canvas: _fill(canvas, data, rows, heights, colors),
        size=(8, sum(heights) + legend),
    )


def _rows(data: Mapping[str, Any]) -> Iterator[_Row]:
    for each in data["environments"]:
        yield _Row(each["environment"], _STATISTICS, each["groups"])
    if data["overall"] is not None:
        title = "all environments, normalized scores"
        yield _Row(title, _STATISTICS | _GAP, data["overall"]["groups"])


def _fill(
    canvas: Any,
    data: Mapping[str, Any],
    rows: Sequence[_Row],
    heights: Sequence[float],
    colors: Mapping[str, str],
) -> None:
    columns = max(len(row.statistics) for row in rows)
    grid = canvas.add_gridspec(len(heights), columns, height_ratios=heights)
    for index, row in enumerate(rows):
        for column, (name, label) in enumerate(row.statistics.items()):
            axes = canvas.add_subplot(grid[index, column])
            _draw_estimates(axes, row.groups, name, colors)
            axes.set_xlabel(label, fontsize="small")
            if column == 0:
                axes.set_title(quote_mathtext(row.title), loc="left", fontsize="medium")
    if (overall := data["overall"]) is not None:
        _draw_profiles(canvas.add_subplot(grid[-1, :]), overall["groups"], colors)
    text = comparison_tables.describe_comparison(data, "as lines")
    canvas.supxlabel(quote_mathtext(text), fontsize="x-small")
    names = [*map(quote_mathtext, colors)]
    handles = [
        canvas.axes[0].plot([], [], color=color, marker="o")[0]
        for color in colors.values()
    ]
    is_long = max(map(len, names)) > _LONG_LABEL
    canvas.legend(
        handles,
        names,
        loc="outside upper center",
        ncols=1 if is_long else min(3, len(names)),
        fontsize="small",
    )


def _draw_estimates(
    axes: Any, groups: Sequence[Mapping[str, Any]], name: str, colors: Mapping[str, str]
) -> None:
    """A point and the interval of each group, below each other."""
    for index, group in enumerate(groups):
        color, estimate = colors[group["group"]], group[name]
        if estimate["ci95"] is not None:
            axes.plot(
                estimate["ci95"],
                [index, index],
                color=color,
                linewidth=3,
                solid_capstyle="butt",
            )
        axes.plot(estimate["value"], index, color=color, marker="o", markersize=7)
    axes.set_ylim(len(groups) - 0.5, -0.5)  # the first group at the top
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize="small")
    axes.margins(x=0.1)
    axes.grid(axis="x", alpha=0.3)


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
