"""Radar: the scores of the tags as a radar plot, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.quoting import quote_mathtext
from rlcli.results import figure

_LEAST = 0.05  # the radius of a score of 0, as in bsuite: the shape does not collapse


def draw_radar(tags: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Writes the radar plot of `score_tags`; tags without a score are at 0."""

    def fill(canvas: Any) -> None:
        _fill(canvas.add_subplot(projection="polar"), tags, title)

    figure.save(path, fill, size=(7, 7))


def radii(tags: Sequence[Mapping[str, Any]]) -> list[float]:
    """The distances of the tags from the centre."""
    return [max(each["score"] or 0.0, _LEAST) for each in tags]


def _fill(axes: Any, tags: Sequence[Mapping[str, Any]], title: str) -> None:
    angles = [2 * math.pi * i / len(tags) for i in range(len(tags))]
    values = radii(tags)
    axes.plot([*angles, angles[0]], [*values, values[0]], linewidth=3)
    axes.fill(angles, values, alpha=0.2)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0])
    labels = [quote_mathtext(each["tag"].replace("_", " ")) for each in tags]
    axes.set_thetagrids([math.degrees(angle) for angle in angles], labels)
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
        is_left = math.pi / 2 < angle < 3 * math.pi / 2
        label.set_horizontalalignment("right" if is_left else "left")
    axes.set_title(quote_mathtext(title), pad=24)
