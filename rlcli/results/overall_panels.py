"""Overall panels: estimates with intervals, and performance profiles, in a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

_STATISTICS = {"iqm": "IQM", "optimality_gap": "optimality gap"}
PROFILE, IMPROVEMENT = "performance profile", "P(improvement)"  # titles
_ROOMY = 8  # rows of a panel with marks of full size


def count_panels(overall: Mapping[str, Any] | None) -> int:
    """How many axes `draw_overall` needs."""
    if not overall:
        return 0
    return 1 + len(_STATISTICS) + bool(overall["improvement"])


def draw_overall(
    every_axes: Sequence[Any], overall: Mapping[str, Any], colors: Mapping[str, str]
) -> None:
    """Draws the results over all environments on as many axes as `count_panels`."""
    groups, pairs = overall["groups"], overall["improvement"]
    profile, *others = every_axes
    draw_profiles(profile, groups, colors)
    profile.set_title(PROFILE, fontsize="medium")
    for axes, (name, label) in zip(others, _STATISTICS.items(), strict=False):
        draw_estimates(axes, groups, name, colors)
        axes.set_title(label, fontsize="medium")
        axes.set_xlabel("normalized score", fontsize="small")
    if pairs:
        draw_improvement(others[-1], pairs, colors)
        others[-1].set_title(IMPROVEMENT, fontsize="medium")


def draw_estimates(
    axes: Any,
    groups: Sequence[Mapping[str, Any]],
    name: str,
    colors: Mapping[str, str],
    size: float = 1.0,
) -> None:
    """A point and the interval of each group, below each other; `size` of its marks."""
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


def draw_profiles(
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
    axes.set_xlabel("normalized score", fontsize="small")
    axes.set_ylabel("fraction of seeds above", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.margins(x=0.01)
    axes.grid(alpha=0.3)


def draw_improvement(
    axes: Any, pairs: Sequence[Mapping[str, Any]], colors: Mapping[str, str]
) -> None:
    """The probability that the group at the left is better than that at the right.

    A row for each pair, as in (Agarwal et al., 2021). The groups have their colours
    instead of their names, which would leave no room for the intervals.
    """
    from matplotlib.transforms import ScaledTranslation

    rows = [{"group": pair["first"], "improvement": pair} for pair in pairs]
    size = min(1.0, _ROOMY / len(pairs))  # so that the marks of rows do not overlap
    draw_estimates(axes, rows, "improvement", colors, size)
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
    axes.set_xlabel("left over right", fontsize="small")
