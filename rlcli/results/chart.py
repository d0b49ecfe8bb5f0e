"""Chart: learning curves as text for terminals and pipes."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from string import ascii_letters, digits
from typing import Any

import numpy as np
from rich.text import Text

from rlcli.quoting import printable
from rlcli.results.canvas import BrailleCanvas, choose_ticks, widen_range
from rlcli.runs.formatting import format_number, format_number_of
from rlcli.runs.metric_labels import STATISTICS, label_metric

COLORS = ("cyan", "yellow", "magenta", "green", "red", "blue")
ALL_ENVIRONMENTS = "all environments"
Data = Mapping[str, Any]  # of curves, comparisons and groups, as in JSON
_OVERALL = {"y": "normalized score, IQM", "center": "iqm", "threshold": None}
_UNITS = {"steps": "steps", "seconds": "s", "updates": "updates"}
_LETTERS = ascii_letters[26:] + ascii_letters[:26] + digits
_BETWEEN_LETTERS = 16  # characters between two letters on a curve
_LINES = {"y": "│", "tick": "┤", "x": "─", "x_tick": "┬", "corner": "└", "cut": "╌"}
_ASCII_LINES = dict(zip(_LINES, "|+-++-", strict=True))


def draw_chart(
    result: Data, width: int, height: int = 16, *, ascii: bool = False
) -> Text:
    """The curves of `rlcli.plot` with axes and a legend, at most `width` wide.

    Each environment has a panel. Several curves have letters, so that they can be told
    apart without colour. The interval over seeds is shaded. `ascii`: for terminals
    without Unicode, where the interval is in the legend only.
    """
    panels = split_panels(result).values()
    return Text("\n").join(_draw_panel(each, width, height, ascii) for each in panels)


def split_panels(result: Data) -> dict[str | None, dict[str, Any]]:
    """The curves of `rlcli.plot` by environment.

    Each has an `index`, that of its label, which it has in common with the curves of
    its group in other environments.
    """
    overall = result.get("overall") or {"curves": []}
    curves = [*result["curves"], *overall["curves"]]
    labels = [*dict.fromkeys(curve["label"] for curve in curves)]
    panels: dict[str | None, dict[str, Any]] = {}
    for curve in curves:
        indexed = {**curve, "index": labels.index(curve["label"])}
        own = _OVERALL if curve["environment"] == ALL_ENVIRONMENTS else {}
        panel = {**result, **own, "curves": [], "several": len(labels) > 1}
        panels.setdefault(curve["environment"], panel)["curves"].append(indexed)
    return panels


def _draw_panel(result: Data, width: int, height: int, ascii: bool) -> Text:
    curves, threshold = result["curves"], result["threshold"]
    y_range, x_range = _ranges(curves, threshold)
    ticks = choose_ticks(*y_range, max(2, height // 2))
    labels = _tick_labels(ticks)
    margin = max(map(len, labels)) + 1
    canvas = BrailleCanvas(max(10, width - margin - 1), height, x_range, y_range)
    _fill(canvas, curves, with_bands=not ascii)
    lines = _ASCII_LINES if ascii else _LINES
    text = Text(no_wrap=True)
    text.append(_title(result, width) + "\n", "bold")
    rows = {canvas.row(tick): each for tick, each in zip(ticks, labels, strict=True)}
    cut = None if threshold is None else canvas.row(threshold)
    letters = _place_letters(canvas, curves) if result["several"] else {}
    for row in range(height):
        edge = lines["tick"] if row in rows else lines["y"]
        text.append(f"{rows.get(row, ''):>{margin - 1}} {edge}", "dim")
        for column in range(canvas.width):
            cell, owner = canvas.cell(row, column)
            style = COLORS[owner % len(COLORS)] if owner >= 0 else "dim"
            if (row, column) in letters:
                owner = letters[row, column]
                cell, style = _letter(owner), f"bold {COLORS[owner % len(COLORS)]}"
            elif owner < 0 and row == cut:
                cell = lines["cut"]
            elif owner >= 0 and ascii:
                cell = _letter(owner) if result["several"] else "*"
            text.append(cell, style)
        text.append("\n")
    text.append(_x_axis(canvas, x_range, margin, lines), "dim")
    for curve, line in zip(curves, _legend(result, width), strict=True):
        text.append(line, COLORS[curve["index"] % len(COLORS)])
    return text


def _fill(canvas: BrailleCanvas, curves: Sequence[Data], *, with_bands: bool) -> None:
    """Draws bands first, so that no band covers a line."""
    arrays = [
        {key: np.array(curve[key], float) for key in ("x", "y")} for curve in curves
    ]
    for curve, each in zip(curves, arrays, strict=True):
        if with_bands and curve["low"] is not None:
            low, high = np.array(curve["low"]), np.array(curve["high"])
            canvas.shade(each["x"], low, high, curve["index"])
    for curve, each in zip(curves, arrays, strict=True):
        canvas.draw_line(each["x"], each["y"], curve["index"])


def _ranges(
    curves: Sequence[Data], threshold: float | None
) -> tuple[tuple[float, float], tuple[float, float]]:
    ys = [
        value
        for curve in curves
        for key in ("y", "low", "high")
        for value in curve[key] or ()
    ]
    ys += [] if threshold is None else [threshold]
    xs = [value for curve in curves for value in (curve["x"][0], curve["x"][-1])]
    low, high = widen_range(ys)
    margin = (high - low) / 50
    return (low - margin, high + margin), widen_range([0.0, *xs])


def _place_letters(
    canvas: BrailleCanvas, curves: Sequence[Data]
) -> dict[tuple[int, int], int]:
    """Cells at regular distances on each of several curves, with the curve's index."""
    cells: dict[tuple[int, int], int] = {}
    for index, curve in enumerate(curves):
        first, last = canvas.column(curve["x"][0]), canvas.column(curve["x"][-1])
        distance = max(_BETWEEN_LETTERS, 3 * len(curves))
        offset = (index + 1) * distance // (len(curves) + 1)
        columns = [*range(first + offset, last, distance)] or [last]
        for column in columns:
            share = (column - first + 0.5) / max(last - first + 1, 1)
            x = curve["x"][0] + share * (curve["x"][-1] - curve["x"][0])
            row = canvas.row(float(np.interp(x, curve["x"], curve["y"])))
            cells.setdefault((row, column), curve["index"])
    return cells


def _x_axis(
    canvas: BrailleCanvas,
    x_range: tuple[float, float],
    margin: int,
    lines: Mapping[str, str],
) -> str:
    ticks = choose_ticks(*x_range, max(2, canvas.width // 12))
    labels = _tick_labels(ticks)
    axis, below = [lines["x"]] * canvas.width, [" "] * (canvas.width + margin + 1)
    taken = 0
    for tick, label in zip(ticks, labels, strict=True):
        column = canvas.column(tick)
        axis[column] = lines["x_tick"]
        begin = min(
            max(column + margin + 1 - len(label) // 2, 0), len(below) - len(label)
        )
        if begin >= taken:
            below[begin : begin + len(label)] = label
            taken = begin + len(label) + 1
    labels_line = "".join(below).rstrip()
    return f"{'':{margin}}{lines['corner']}{''.join(axis)}\n{labels_line}\n"


def _tick_labels(ticks: Sequence[float]) -> list[str]:
    """Numbers with as many digits as their distance requires, in thousands if large."""
    largest = max(map(abs, ticks), default=0.0)
    step = abs(ticks[1] - ticks[0]) if len(ticks) > 1 else largest or 1.0
    sizes = (
        unit
        for unit in ((1e9, "G"), (1e6, "M"), (1e3, "k"))
        if largest >= 10 * unit[0] or (largest >= unit[0] and step >= unit[0] / 10)
    )
    size, suffix = next(sizes, (1.0, ""))
    if largest < 1e-3 or largest >= 1e12:
        return [f"{tick:.3g}" for tick in ticks]
    digits = max(0, math.ceil(-math.log10(step / size) - 1e-9))
    if digits and round(step / size, digits) != round(step / size, digits + 2):
        digits += 1  # steps of 2.5
    return [f"{tick / size:.{digits}f}{suffix if tick else ''}" for tick in ticks]


def _title(result: Data, width: int) -> str:
    """What a panel shows: `return, evaluation by steps in CartPole-v1: mean over …`."""
    environment = result["curves"][0]["environment"]
    place = f" in {printable(environment)}" if environment else ""
    panel = f"{printable(label_metric(result['y']))} by {result['x']}{place}"
    titles = [f"{panel}: {statistic}" for statistic in describe_curves(result)]
    short = next((each for each in titles if len(each) <= width), titles[-1])
    return textwrap.fill(short, width)


def describe_curves(result: Data) -> list[str]:
    """What curves and bands are, in words, from the longest to the shortest text."""
    center = f"{STATISTICS[result['center']]} over seeds"
    if all(curve["low"] is None for curve in result["curves"]):
        return [center]
    intervals = (", with its 95 % bootstrap interval", ", 95 % interval", "")
    return [center + interval for interval in intervals]


def _legend(result: Data, width: int) -> list[str]:
    """A line per curve, or two: letter, label, seeds, last value and the crossing."""
    curves = result["curves"]
    longest = max(len(printable(curve["label"])) for curve in curves)
    lines = []
    for curve in curves:
        letter = f"{_letter(curve['index'])}  " if result["several"] else ""
        seeds = format_number_of(curve["seeds"], "seed")
        last = format_number(curve["y"][-1])
        interval = ""
        if curve["low"] is not None:
            low, high = (
                format_number(curve["low"][-1]),
                format_number(curve["high"][-1]),
            )
            interval = f" ({low} to {high})"
        label = f"{letter}{printable(curve['label']):{longest}}"
        parts = [f"{seeds:>8}", f"last {last}{interval}"]
        details = "  ".join([*parts, *describe_crossing(curve, result)])
        lines.append((label, details))
    if all(len(label) + 2 + len(details) <= width for label, details in lines):
        return [f"{label}  {details}\n" for label, details in lines]
    return [f"{label.rstrip()}\n   {details.lstrip()}\n" for label, details in lines]


def describe_crossing(curve: Data, result: Data) -> list[str]:
    """When a curve crosses the threshold, in words; [] without a threshold."""
    threshold = result["threshold"]
    if threshold is None:
        return []
    is_above = curve["y"][0] >= threshold
    if curve["crossing"] is None:
        side = "always above" if is_above else "never reaches"
        return [f"{side} {threshold:g}"]
    unit = _UNITS[result["x"]]
    verb = "falls below" if is_above else "reaches"
    return [f"{verb} {threshold:g} at {format_number(curve['crossing'])} {unit}"]


def _letter(index: int) -> str:
    return _LETTERS[index % len(_LETTERS)]
