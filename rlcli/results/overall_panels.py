"""Overall panels: estimates with intervals, and performance profiles, in a figure."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rlcli.results.chart import Data
from rlcli.runs.metric_labels import STATISTICS

_ROOMY = 8  # rows of a panel with marks of full size
_UNIT = "normalized score"


def list_panels(
    overall: Data | None,
) -> dict[str, Callable[[Any, Mapping[str, str]], None]]:
    """The panels of the results over all environments, by title.

    Each is drawn by a function of axes, and of the colours of groups.
    """
    if not overall:
        return {}
    groups, pairs = overall["groups"], overall["improvement"]
    estimates = {
        STATISTICS[name]: partial(draw_estimates, groups, name, unit=_UNIT)
        for name in ("iqm", "optimality_gap")
    }
    improvement = {"P(improvement)": partial(draw_improvement, pairs)} if pairs else {}
    profile = {"performance profile": partial(draw_profiles, groups)}
    return {**profile, **estimates, **improvement}


def draw_estimates(
    groups: Sequence[Data],
    name: str,
    axes: Any,
    colors: Mapping[str, str],
    *,
    unit: str,
    size: float = 1.0,
) -> None:
    """A point and the interval of each group, below each other.

    `unit` is the label of x, and `size` that of the marks.
    """
    for index, group in enumerate(groups):
        color, estimate = colors[group["group"]], group[name]
        if estimate["ci95"] is not None:
            ends = estimate["ci95"], [index, index]
            axes.plot(*ends, color=color, linewidth=3 * size, solid_capstyle="butt")
        axes.plot(
            estimate["value"], index, color=color, marker="o", markersize=7 * size
        )
    axes.set_ylim(len(groups) - 0.5, -0.5)  # the first group at the top
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize="small")
    axes.margins(x=0.1)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(unit, fontsize="small")


def draw_profiles(groups: Sequence[Data], axes: Any, colors: Mapping[str, str]) -> None:
    """The fraction of seeds above each score, with its interval."""
    for group in groups:
        profile, color = group["profile"], colors[group["group"]]
        axes.plot(profile["score"], profile["fraction"], color=color)
        if profile["low"] is not None:
            bounds = profile["low"], profile["high"]
            axes.fill_between(
                profile["score"], *bounds, color=color, alpha=0.2, linewidth=0
            )
    axes.set_xlabel(_UNIT, fontsize="small")
    axes.set_ylabel("fraction of seeds above", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.margins(x=0.01)
    axes.grid(alpha=0.3)


def draw_improvement(
    pairs: Sequence[Data], axes: Any, colors: Mapping[str, str]
) -> None:
    """The probability that the group at the left is better than that at the right.

    A row for each pair, as in (Agarwal et al., 2021). The groups have their colours
    instead of their names, which would leave no room for the intervals.
    """
    from matplotlib.transforms import ScaledTranslation

    rows = [{"group": pair["first"], "improvement": pair} for pair in pairs]
    size = min(1.0, _ROOMY / len(pairs))  # so that the marks of rows do not overlap
    unit = "left over right"
    draw_estimates(rows, "improvement", axes, colors, unit=unit, size=size)
    for x, name in ((0, "first"), (1, "second")):
        shift = ScaledTranslation(0.2 * (x - 0.5), 0, axes.figure.dpi_scale_trans)
        beside = axes.get_yaxis_transform() + shift
        for index, pair in enumerate(pairs):
            square = {"color": colors[pair[name]], "marker": "s", "clip_on": False}
            square |= {"markersize": 6 * size, "markeredgewidth": 0}
            axes.plot(x, index, transform=beside, **square)
    axes.axvline(0.5, color="gray", linestyle="--", linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1])
