"""Charts: that Vega-Lite draws them, and their data."""

import json
import re

import numpy as np
import pytest

from rlcli.results.report import charts
from rlcli.results.report.charts import Line

BAND = Line("a & <b>", 0, [0, 10, 20], [1, 2, 4], [0, 1, 3], [2, 3, 5])
LINE = Line('it\'s "c"', 1, [0, 20], [3, 3])
SHARES = np.array([[0.1, 0.9], [0.25, 0.75]])
ROWS = [
    {"label": "a", "color": 0, "value": 2.0, "ci95": [1, 3], "results": [1.0, 3.0]},
    {"label": "b", "color": 1, "value": 5.0, "ci95": None, "results": [5.0]},
]
HEAT = [
    charts.HeatCell("it's", "A", 0.0, "2", "finished"),
    charts.HeatCell("it's", "B", None, "missing", "missing"),
    charts.HeatCell("b", "A", 1.0, "3", "running"),
]
CHARTS = {
    "band": charts.draw_lines("t", [BAND, LINE], x="steps", y="G", threshold=3.5),
    "legend": charts.draw_lines("t", [LINE], x="step", y="v", has_legend=True),
    "point": charts.draw_lines("t", [Line("a", 9, [5], [1])], x="steps", y="G"),
    "shares": charts.draw_shares(
        "t", ["it's", "b"], [0, 1], SHARES, x_title="step", description="d"
    ),
    "histogram": charts.draw_histogram(
        "t", 2, [3, 0, 1], [0, 1, 2, 3], {"seed 0": 1.5}, x="return", description="d"
    ),
    "heat": charts.draw_heat_map(
        "t", HEAT, x="environment", y="recipe", description="d", note=""
    ),
    "intervals": charts.draw_intervals(
        "t", ROWS, x="G", center="mean", description="d"
    ),
    "cut": charts.draw_intervals(
        *("t", ROWS), x="P", center="p", description="d", x_range=(0, 9), threshold=0.5
    ),
}


def expand(blocks):
    """The rows of blocks, as `page.js` makes them."""
    return [
        {
            key: each[i] if isinstance(each, list) else each
            for key, each in block.items()
        }
        for block in blocks
        for i in range(len(next(e for e in block.values() if isinstance(e, list))))
    ]


@pytest.mark.parametrize("name", CHARTS)
def test_vega_lite_draws_every_kind_of_chart(name):
    vl_convert = pytest.importorskip("vl_convert")
    chart = CHARTS[name]
    data = {"name": "points", "values": expand(chart.blocks)}
    svg = vl_convert.vegalite_to_svg({**chart.spec, "width": 400, "data": data})
    kind, number = {
        "band": ("line", 2),
        "legend": ("line", 1),
        "point": ("symbol", 2),  # the point, and that of the pointer
        "shares": ("area", 2),
        "histogram": ("rect", 3),
        "heat": ("rect", 3),
        "intervals": ("symbol", 5),  # two means and three seeds
        "cut": ("symbol", 5),
    }[name]
    assert _count_items(svg, kind) == number
    assert svg.count('stroke="gray" stroke-width="1.5"') == (name in ("band", "cut"))
    assert "NaN" not in svg and "undefined" not in svg


def _count_items(svg, kind):
    """The items of the marks of a kind, without those of axes and legends."""
    groups = re.findall(rf'class="mark-{kind} role-mark [^"]*"[^>]*>(.*?)</g>', svg)
    return sum(group.count("<path") for group in groups)


@pytest.mark.parametrize(
    "name", ["a\\", 'a\\": datum.x, "b', "a\nb", "a.b[0]", "", "'"]
)
def test_a_metric_of_any_name_is_drawn(name):
    line = Line("g", 0, [1.0, 2.0], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5])
    chart = charts.draw_lines(name, [line], x="steps", y=name)
    rows = expand(chart.blocks)
    spec = {**chart.spec, "width": 300, "data": {"name": "points", "values": rows}}
    converter = pytest.importorskip("vl_convert")
    vega = converter.vegalite_to_vega(spec)
    assert "<path" in converter.vega_to_svg(vega)


def test_no_mark_is_cut_at_the_edge_of_a_chart():
    for chart in CHARTS.values():
        assert '"clip": true' not in json.dumps(chart.spec)


def test_rows_of_intervals_have_their_names():
    texts = [
        layer
        for layer in CHARTS["intervals"].spec["layer"]
        if layer["mark"]["type"] == "text"
    ]
    assert [layer["encoding"]["text"] for layer in texts] == [{"field": "label"}]


def test_a_legend_has_the_colors_and_dashes_of_its_lines():
    lines = [Line("a", 0, [0, 1], [1, 2]), Line("b", 1, [0, 1], [1, 2])]
    chart = charts.draw_lines("t", lines, x="step", y="v", has_legend=True)
    encoding = chart.spec["layer"][0]["encoding"]
    for index, entry in enumerate(chart.legend):
        assert entry.label == lines[index].label
        assert encoding["color"]["scale"]["range"][index] == entry.color
        assert encoding["strokeDash"]["scale"]["range"][index] == entry.dash
    assert [each.label for each in CHARTS["shares"].legend] == ["it's", "b"]


def test_groups_of_one_colour_have_different_dashes():
    lines = [Line(str(index), index, [1.0, 2.0], [1.0, 2.0]) for index in range(32)]
    [layer] = charts.draw_lines("return", lines, x="steps", y="return").spec["layer"][
        :1
    ]
    scales = (layer["encoding"][name]["scale"] for name in ("color", "strokeDash"))
    colors, dashes = (each["range"] for each in scales)
    assert len({*zip(colors, map(tuple, dashes), strict=True)}) == 32


def test_numbers_are_rounded_and_those_that_are_not_finite_are_missing():
    series = Line("a", 0, [123_456_789, 2], [np.pi, np.nan])
    (block,) = charts.draw_lines("t", [series], x="steps", y="G").blocks
    assert block["x"] == [123_456_789, 2]
    assert block["y"] == [3.1416, None]


@pytest.mark.parametrize("background", ["#ffffff", "#f7f8fa", "#12151b", "#1a1e26"])
def test_the_colours_are_visible_in_both_themes(background):
    for color in charts.COLORS:
        assert contrast(color, background) >= 3


def contrast(first, second):
    """The contrast ratio of WCAG."""
    bright, dark = sorted(map(luminance, (first, second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(color):
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(
        channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
    )
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_in_both_themes(theme):
    from importlib.resources import files

    style = (files("rlcli.results.report") / "page" / "page.css").read_text()
    _, light, dark, *_ = style.split(":root {")
    block = (light if theme == "light" else dark).partition("}")[0]
    found = dict(re.findall(r"--(\w+): (#\w{6})", block))
    for text in ("ink", "muted", "link"):
        assert contrast(found[text], found["paper"]) >= 4.5
        assert contrast(found[text], found["panel"]) >= 4.5
    for mark in ("mark", "change"):
        assert contrast(found["ink"], found[mark]) >= 4.5
