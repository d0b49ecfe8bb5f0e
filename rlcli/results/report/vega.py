"""Vega: the pieces of Vega-Lite specifications that the charts share."""

from collections.abc import Sequence
from typing import Any

from rlcli.quoting import printable

Spec = dict[str, Any]

INTERVAL_TEXT: Spec = {
    "calculate": "isValid(datum.low) ? format(datum.low, ',.4~g') + ' to ' + "
    "format(datum.high, ',.4~g') : 'n/a: 1 seed'",
    "as": "interval",
}
# An expression of Vega: the text of a number on the x axis.
_SHORT = "format(datum.value, abs(datum.value) >= 1000 ? '~s' : '~g')"


def base(height: int) -> Spec:
    """A chart, whose width the page sets to that of its place."""
    return {
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"name": "points"},
        "config": {"customFormatTypes": True, "view": {"stroke": None}},
    }


def band(encoding: Spec) -> Spec:
    """The area between the ends of intervals."""
    low = {"field": "low", "type": "quantitative"}
    return {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "area", "opacity": 0.16},
        "encoding": {**encoding, "y": low, "y2": {"field": "high"}},
    }


def rule_mark(row: Spec, encoding: Spec) -> Spec:
    """A dashed grey line across the chart, at one x or y: that of a row of its own."""
    rule = {"type": "rule", "strokeWidth": 1.5, "color": "gray", "strokeDash": [4, 4]}
    return {"data": {"values": [row]}, "mark": rule, "encoding": encoding}


def select_nearest(name: str, encodings: Sequence[str] = ()) -> Spec:
    """Selects what is nearest to the pointer."""
    select: Spec = {"type": "point", "on": "pointerover"}
    select |= {"clear": "pointerout", "nearest": True}
    if encodings:
        select["encodings"] = [*encodings]
    return {"name": name, "select": select}


def hover_points(encoding: Spec, tooltip: Sequence[Spec]) -> Spec:
    """Points that appear, with a tooltip, where the pointer is near."""
    return {
        "transform": [INTERVAL_TEXT],
        "params": [select_nearest("hover")],
        "mark": {"type": "point", "filled": True, "size": 60},
        "encoding": {
            **encoding,
            "opacity": {
                "condition": {"param": "hover", "empty": False, "value": 1},
                "value": 0,
            },
            "tooltip": [*tooltip],
        },
    }


def axis(field: str, title: str, *, domain: Sequence[float], **keywords: Any) -> Spec:
    """A number on an axis; `x` is shortened to 20k and has no grid."""
    ticks: Spec = {"tickCount": 5}
    if field == "x":
        ticks = {"tickCount": 6, "grid": False, "labelExpr": _SHORT}
    guide = {"title": title, "labelOverlap": True, **ticks}
    scale = {"zero": False, "nice": field != "x", "domain": [*domain]}
    own = {"field": field, "type": "quantitative", "axis": guide}
    return {**own, **keywords, "scale": scale}


def text_field(name: str, title: str) -> Spec:
    """A text of a tooltip."""
    return {"field": name, "title": _quote(title), "type": "nominal"}


def near_text_field(name: str, title: str) -> Spec:
    """A text of the point nearest to the pointer, for tooltips.

    Vega-Lite looks for a text without a format in the area around the point instead.
    """
    return text_field(name, title) | {"formatType": "trim", "format": ""}


def number_field(name: str, title: str, form: str = "") -> Spec:
    """A number of a tooltip; `x` may be a large number of steps."""
    form = form or (",.6~r" if name == "x" else ",.4~g")
    title = _quote(title)
    return {"field": name, "title": title, "type": "quantitative", "format": form}


def _quote(title: str) -> str:
    """A title of a tooltip, of which Vega-Lite makes a string in an expression.

    Vega-Lite escapes quotation marks only.
    """
    return " ".join(printable(title).split()).replace("\\", "\\\\")


def scale_by_group(groups: Sequence[int], values: Sequence[Any]) -> Spec:
    """One of the values for each group."""
    indices = sorted({*groups})
    return scale("series", indices, [values[i % len(values)] for i in indices])


def scale(field: str, domain: Sequence[Any], values: Sequence[Any]) -> Spec:
    """The values of a field's domain, without a legend: the page has one."""
    chosen = [values[i % len(values)] for i in range(len(domain))]
    scale = {"domain": [*domain], "range": chosen}
    return {"field": field, "type": "nominal", "legend": None, "scale": scale}
