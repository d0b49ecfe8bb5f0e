"""Charts: Vega-Lite specifications of the report's charts, with their data.

A chart is data until the page draws it: `blocks` are series as columns, which take a
fifth of the space of rows. `page.js` expands them to the rows that Vega-Lite reads, and
to a table for screen readers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcli.results.canvas import widen_range
from rlcli.results.report import vega
from rlcli.results.report.vega import Spec

# Each has a contrast of 3 or more with the backgrounds of both themes.
COLORS = (
    *("#2f7de1", "#d9660d", "#0c9b6a", "#c2439b", "#8a63d2", "#b08400", "#0a93a8"),
    "#7c828d",
)
# A second cue beside colour. Groups of one colour have different ones.
_PATTERNS = ([1, 0], [7, 3], [3, 2], [9, 3, 2, 3])
_DASHES = [
    _PATTERNS[(index + index // len(COLORS)) % len(_PATTERNS)]
    for index in range(len(COLORS) * len(_PATTERNS))
]
_INTERVAL_ROW = 40  # pixels of a group, with its name
_INTERVAL = "95 % interval"
_DIGITS = 5  # significant ones; more are not visible
_HEAT_ROW = 30  # pixels

Numbers = Sequence[float] | np.ndarray  # [n]
Block = Mapping[str, Any]  # columns of one series; a value that is no list is repeated


class LegendEntry(NamedTuple):
    """A line of a legend, which the page draws: one of Vega is as wide as its texts."""

    label: str
    color: str
    dash: Sequence[int]  # of a line; () for an area


class Chart(NamedTuple):
    """A chart of the page."""

    title: str
    description: str  # for screen readers
    spec: Spec
    blocks: Sequence[Block]
    columns: Mapping[str, str]  # of the table of its data: field -> title
    note: str = ""
    legend: Sequence[LegendEntry] = ()
    meaning: str = ""  # of its metric


class Line(NamedTuple):
    """A line of a chart; `color` is the index of its group."""

    label: str
    color: int
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None


def draw_lines(
    title: str,
    lines: Sequence[Line],
    *,
    x: str,
    y: str,
    height: int = 280,
    threshold: float | None = None,
    x_range: Sequence[float] = (),
    description: str = "",
    note: str = "",
    has_legend: bool = False,
) -> Chart:
    """Lines over x, with bands where series have intervals.

    `x_range`: what the axis shows beside the lines, such as the steps of other charts.
    """
    blocks = [_line_block(each) for each in lines]
    has_bands = any(each.low is not None for each in lines)
    tooltip = [
        vega.near_text_field("label", "series"),
        vega.number_field("x", x),
        vega.number_field("y", y),
    ]
    if has_bands:
        tooltip.append(vega.near_text_field("interval", _INTERVAL))
    ends = [(each.x[0], each.x[-1]) for each in lines]
    ys = [values for each in lines for values in (each.y, each.low, each.high)]
    x_axis = vega.axis("x", x, domain=_find_range(*ends, x_range))
    y_axis = vega.axis(
        "y", y, domain=_find_range(*ys, () if threshold is None else [threshold])
    )
    groups = [each.color for each in lines]
    color, dash = (vega.scale_by_group(groups, each) for each in (COLORS, _DASHES))
    encoding = {"x": x_axis, "y": y_axis, "color": color}
    layers = [vega.band(encoding)] if has_bands else []
    mark: Spec = {"type": "line", "strokeWidth": 2}
    mark["point"] = all(len(each.x) == 1 for each in lines)
    layers.append({"mark": mark, "encoding": {**encoding, "strokeDash": dash}})
    if threshold is not None:
        layers.append(vega.rule_mark({}, {"y": {"datum": threshold}}))
    layers.append(vega.hover_points(encoding, tooltip))
    spec = vega.base(height) | {"layer": layers}
    columns = {"label": "series", "x": x, "y": y, "interval": _INTERVAL}
    shown = [
        LegendEntry(label, COLORS[i % len(COLORS)], _DASHES[i % len(_DASHES)])
        for label, i, *_ in (lines if has_legend else ())
    ]
    return Chart(title, description or title, spec, blocks, columns, note, shown)


def _find_range(*columns: Numbers | None) -> tuple[float, float]:
    """The range of all finite values."""
    values = [float(n) for column in columns if column is not None for n in column]
    return widen_range([*filter(math.isfinite, values)] or [0.0])


def draw_shares(
    title: str,
    labels: Sequence[str],
    x: Numbers,
    shares: np.ndarray,
    *,
    x_title: str,
    description: str,
    note: str = "",
) -> Chart:
    """Probabilities `[x, labels]` as areas that add up to 1."""
    names = [f"p{index}" for index in range(len(labels))]
    columns = {n: _round_values(s) for n, s in zip(names, shares.T, strict=True)}
    titles = dict(zip(names, labels, strict=True))
    tooltip = [vega.number_field("x", x_title)]
    tooltip += [vega.number_field(n, titles[n], ".1%") for n in names]
    x_axis = vega.axis("x", x_title, domain=_find_range([x[0], x[-1]]))
    hover = {
        "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0},
        "params": [vega.select_nearest("rule_hover", ["x"])],
        "encoding": {"x": x_axis, "tooltip": tooltip},
    }
    areas = {
        "transform": [{"fold": names, "as": ["key", "p"]}],
        "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.85},
        "encoding": {
            "x": x_axis,
            "y": vega.axis("p", "probability", stack="zero", domain=[0, 1]),
            "color": vega.scale("key", names, COLORS),
            "order": {"field": "key"},
        },
    }
    spec = vega.base(200) | {"layer": [areas, hover]}
    blocks = [{"x": _round_values(x), **columns}]
    legend = [
        LegendEntry(name, COLORS[i % len(COLORS)], ()) for i, name in enumerate(labels)
    ]
    return Chart(
        title, description, spec, blocks, {"x": x_title, **titles}, note, legend
    )


def draw_histogram(
    title: str,
    color: int,
    counts: Sequence[int],
    edges: Sequence[float],
    marks: Mapping[str, float],
    *,
    x: str,
    description: str,
) -> Chart:
    """The number of values in each interval, with `marks` by name below it."""
    blocks: list[Block] = [
        {
            "kind": "bar",
            "x": _round_values(edges[:-1]),
            "x2": _round_values(edges[1:]),
            "y": list(counts),
        },
        {"kind": "mark", "label": [*marks], "x": _round_values([*marks.values()])},
    ]
    tint = COLORS[color % len(COLORS)]
    range_tooltip = [
        vega.number_field("x", "from"),
        vega.number_field("x2", "to"),
        vega.number_field("y", "episodes"),
    ]
    bar = {
        "transform": [{"filter": "datum.kind === 'bar'"}],
        "mark": {"type": "rect", "color": tint, "opacity": 0.8},
        "encoding": {
            "x": vega.axis("x", x, domain=widen_range(edges)),
            "x2": {"field": "x2"},
            "y": vega.axis("y", "episodes", domain=(0, max(1, *counts))),
            "y2": {"datum": 0},
            "tooltip": range_tooltip,
        },
    }
    tick = {
        "transform": [{"filter": "datum.kind === 'mark'"}],
        "mark": {"type": "point", "shape": "triangle-up", "size": 70, "filled": True}
        | {"color": tint, "yOffset": 7, "clip": False, "opacity": 1},
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"datum": 0},
            "tooltip": [
                vega.text_field("label", "seed"),
                vega.number_field("x", "mean"),
            ],
        },
    }
    spec = vega.base(130) | {"layer": [bar, tick]}
    return Chart(title, description, spec, blocks, {"x": x, "y": "episodes"})


def draw_intervals(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    x: str,
    center: str,
    description: str,
    interval: str = _INTERVAL,
    point: str = "seed",
    x_range: Sequence[float] = (),
    threshold: float | None = None,
) -> Chart:
    """A value with its interval and single points for each row.

    Rows have `label`, `color`, `value`, `ci95` and `results`, such as a value of each
    seed; `interval` and `point` say what the last two are. The axis also shows
    `x_range`, and a line at `threshold`.
    """
    ends = [row["ci95"] or (None, None) for row in rows]
    block = {
        "series": [row["color"] for row in rows],
        "label": [row["label"] for row in rows],
        "x": [row["value"] for row in rows],
        "low": [each[0] for each in ends],
        "high": [each[1] for each in ends],
        "points": [_round_values(row["results"]) for row in rows],
    }
    columns = [row[name] for row in rows for name in ("results", "ci95")]
    low, high = _find_range(*columns, x_range)
    margin = (high - low) / 40  # a dot at the end is seen whole
    layers = _interval_layers(center, interval, point)
    if threshold is not None:
        # With the x of the other layers, and neither their rows nor their colours.
        layers.append(vega.rule_mark({"x": threshold}, {"y": None, "color": None}))
    spec = vega.base(_INTERVAL_ROW * len(rows) + 14) | {
        "encoding": {
            "y": {"field": "label", "type": "nominal", "sort": None, "axis": None},
            "x": vega.axis("x", x, domain=(low - margin, high + margin)),
            "color": vega.scale_by_group(block["series"], COLORS),
        },
        "layer": layers,
    }
    titles = {"label": "group", "x": center, "interval": interval, "points": point}
    return Chart(title, description, spec, [block], titles)


class HeatCell(NamedTuple):
    """A cell of a heat map."""

    row: str
    column: str
    share: float | None  # of the range from the lowest to the highest value, in [0, 1]
    text: str
    status: str


def draw_heat_map(
    title: str,
    cells: Sequence[HeatCell],
    *,
    x: str,
    y: str,
    description: str,
    note: str,
) -> Chart:
    """Values by row and column; a cell with a higher share has a stronger colour."""
    rows = {each.row for each in cells}
    block = {name: [getattr(each, name) for each in cells] for name in HeatCell._fields}
    block["opacity"] = [
        0.0 if each.share is None else 0.08 + 0.52 * each.share for each in cells
    ]
    axis = {"type": "nominal", "sort": None}
    guide = {"labelLimit": 260, "labelAngle": 0, "domain": False, "ticks": False}
    above, beside = {**guide, "orient": "top"}, {**guide, "titlePadding": 24}
    place = {
        "x": {**axis, "field": "column", "title": x, "axis": above},
        # Browsers may draw labels wider than Vega measures them: the title is apart.
        "y": {**axis, "field": "row", "title": y or None, "axis": beside},
    }
    tooltip = [vega.text_field(name, name) for name in ("row", "column", "status")]
    tooltip.append(vega.near_text_field("text", "return"))
    opacity = {"field": "opacity", "type": "quantitative", "scale": None}
    spec = vega.base(_HEAT_ROW * len(rows) + 50) | {
        "encoding": place,
        "layer": [
            {
                "mark": {"type": "rect", "color": COLORS[0], "stroke": "gray"}
                | {"strokeOpacity": 0.25, "cornerRadius": 3},
                "encoding": {"fillOpacity": opacity, "tooltip": tooltip},
            },
            {
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {"text": {"field": "text", "type": "nominal"}},
            },
        ],
    }
    columns = {"row": y or "cell", "column": x, "text": "return", "status": "status"}
    return Chart(title, description, spec, [block], columns, note)


def _interval_layers(center: str, interval: str, point: str) -> list[Spec]:
    """The dots of seeds, and the interval and the value of each row."""
    group = vega.text_field("label", "group")
    ends = vega.text_field("interval", interval)
    return [
        {
            "transform": [{"flatten": ["points"], "as": ["x"]}],
            "mark": {"type": "point", "filled": True, "size": 50, "opacity": 0.5},
            "encoding": {"tooltip": [group, vega.number_field("x", point)]},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 3},
            "encoding": {
                "x": {"field": "low", "type": "quantitative"},
                "x2": {"field": "high"},
            },
        },
        {
            "transform": [vega.INTERVAL_TEXT],
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
            "encoding": {"tooltip": [group, vega.number_field("x", center), ends]},
        },
        # Names above the intervals: beside them they would take the place of the chart.
        {
            "mark": {"type": "text", "align": "left", "dy": -13, "fontSize": 12}
            | {"limit": {"expr": "width"}},
            "encoding": {
                "x": {"value": 0},
                "text": {"field": "label"},
                "color": {"value": "gray"},
            },
        },
    ]


def _line_block(line: Line) -> Block:
    block: dict[str, Any] = {"series": line.color, "label": line.label}
    block |= {"x": _round_values(line.x, 9), "y": _round_values(line.y)}
    if line.low is not None and line.high is not None:
        block |= {"low": _round_values(line.low), "high": _round_values(line.high)}
    return block


def _round_values(values: Numbers, digits: int = _DIGITS) -> list[Any]:
    """Numbers with few digits; None for those that are not finite."""
    return [
        float(f"{value:.{digits}g}") if math.isfinite(value) else None
        for value in map(float, values)
    ]
