"""Overall panels: estimates with intervals, and performance profiles, in a figure."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rlcli.results.chart import Data
from rlcli.runs.metric_labels import STATISTICS

_ROW = 9.0  # points between two rows whose marks of full size do not touch
_MOST_PAIRS = 66  # of twelve groups: with more of them, no row can be seen
_UNIT = "normalized score"
Styles = Mapping[str, Mapping[str, Any]]  # colour and dashes of a line, by group


def list_panels(
    overall: Data | None,
) -> dict[str, Callable[[Any, Styles], None]]:
    """The panels of the results over all environments, by title.

    Each is drawn by a function of axes, and of the styles of groups.
    """
    if not overall:
        return {}
    groups, pairs = overall["groups"], overall["improvement"]
    estimates = {
        STATISTICS[name]: partial(draw_estimates, groups, name, unit=_UNIT)
        for name in ("iqm", "optimality_gap")
    }
    improvement = {}
    if 0 < len(pairs) <= _MOST_PAIRS:
        improvement["P(improvement)"] = partial(draw_improvement, pairs)
    profile = {"performance profile": partial(draw_profiles, groups)}
    return {**profile, **estimates, **improvement}


def draw_estimates(
    groups: Sequence[Data],
    name: str,
    axes: Any,
    styles: Styles,
    *,
    unit: str,
) -> None:
    """A point and the interval of each group, below each other; `unit` is that of x."""
    for index, group in enumerate(groups):
        color, estimate = styles[group["group"]]["color"], group[name]
        if estimate["ci95"] is not None:
            ends = estimate["ci95"], [index, index]
            axes.plot(*ends, color=color, linewidth=3, solid_capstyle="butt")
        axes.plot(estimate["value"], index, color=color, marker="o", markersize=7)
    axes.set_ylim(len(groups) - 0.5, -0.5)  # the first group at the top
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize="small")
    axes.margins(x=0.1)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(unit, fontsize="small")


def draw_profiles(groups: Sequence[Data], axes: Any, styles: Styles) -> None:
    """The fraction of seeds above each score, with its interval."""
    for group in groups:
        profile, style = group["profile"], styles[group["group"]]
        axes.plot(profile["score"], profile["fraction"], **style)
        if profile["low"] is not None:
            bounds = profile["low"], profile["high"]
            band = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
            axes.fill_between(profile["score"], *bounds, **band)
    axes.set_xlabel(_UNIT, fontsize="small")
    axes.set_ylabel("fraction of seeds above", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.margins(x=0.01)
    axes.grid(alpha=0.3)


def draw_improvement(pairs: Sequence[Data], axes: Any, styles: Styles) -> None:
    """The probability that the group at the left is better than that at the right.

    A row for each pair, as in (Agarwal et al., 2021). The groups have their colours
    instead of their names, which would leave no room for the intervals.
    """
    from matplotlib.transforms import ScaledTranslation

    rows = [{"group": pair["first"], "improvement": pair} for pair in pairs]
    draw_estimates(rows, "improvement", axes, styles, unit="left over right")
    for x, name in ((0, "first"), (1, "second")):
        shift = ScaledTranslation(0.2 * (x - 0.5), 0, axes.figure.dpi_scale_trans)
        beside = axes.get_yaxis_transform() + shift
        for index, pair in enumerate(pairs):
            color = styles[pair[name]]["color"]
            square = {"color": color, "marker": "s", "clip_on": False}
            square |= {"markersize": 6, "markeredgewidth": 0}
            axes.plot(x, index, transform=beside, **square)
    axes.axvline(0.5, color="gray", linestyle="--", linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1])


def fit_marks(axes: Any) -> None:
    """Shrinks marks of rows that would touch; call it when axes have their place."""
    bottom, top = axes.get_ylim()
    row = axes.bbox.height / axes.figure.dpi * 72 / (bottom - top)
    size = min(1.0, row / _ROW)
    for line in axes.lines:
        line.set_markersize(size * line.get_markersize())
        line.set_markeredgewidth(size * line.get_markeredgewidth())
        line.set_linewidth(size * line.get_linewidth())
