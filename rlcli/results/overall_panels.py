"""Overall panels: estimates with intervals, and performance profiles, in a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

_STATISTICS = {"iqm": "IQM", "optimality_gap": "optimality gap"}


def draw_overall(
    every_axes: Sequence[Any],
    groups: Sequence[Mapping[str, Any]],
    colors: Mapping[str, str],
) -> None:
    """Draws the groups of all environments on as many axes as `COUNT`."""
    profile, *others = every_axes
    draw_profiles(profile, groups, colors)
    for axes, (name, label) in zip(others, _STATISTICS.items(), strict=True):
        draw_estimates(axes, groups, name, colors)
        axes.set_title(label, fontsize="medium")
        axes.set_xlabel("normalized score", fontsize="small")
    profile.set_title("performance profile", fontsize="medium")


COUNT = 1 + len(_STATISTICS)


def draw_estimates(
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
