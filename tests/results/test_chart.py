"""Chart: what terminals show of curves."""

import numpy as np
import pytest
from rich.console import Console

from rlcli.results.canvas import BrailleCanvas, choose_ticks, widen_range
from rlcli.results.chart import COLORS, draw_chart


def curve(label="a", x=(0, 10), y=(0, 1), **fields):
    base = {"label": label, "seeds": 1, "x": [*x], "y": [*y], "low": None, "high": None}
    return {"environment": "CartPole-v1"} | base | fields


def result(*curves, threshold=None):
    return {
        "x": "steps",
        "y": "avg_G",
        "center": "iqm",
        "threshold": threshold,
        "curves": [*curves],
    }


def test_a_line_goes_from_corner_to_corner():
    canvas = BrailleCanvas(4, 2, (0, 1), (0, 1))
    canvas.draw_line(np.array([0.0, 1.0]), np.array([0.0, 1.0]), owner=3)
    rows = ["".join(canvas.cell(row, c)[0] for c in range(4)) for row in range(2)]
    assert rows == [" ⢀⡴⠋", "⡴⠋  "]
    assert canvas.cell(1, 0) == ("⡴", 3)
    assert canvas.cell(0, 0) == (" ", -1)


def test_a_single_point_is_a_dot():
    canvas = BrailleCanvas(2, 1, (0, 1), (0, 1))
    canvas.draw_line(np.array([0.0]), np.array([0.0]), owner=0)
    assert [canvas.cell(0, 0)[0], canvas.cell(0, 1)[0]] == ["⡀", " "]


def test_a_band_is_shaded_within_its_limits():
    canvas = BrailleCanvas(8, 4, (0, 1), (0, 1))
    canvas.shade(np.array([0, 1.0]), np.array([0.0, 0]), np.array([0.5, 0.5]), owner=0)
    cells = [[canvas.cell(row, column)[0] for column in range(8)] for row in range(4)]
    assert {*cells[0], *cells[1]} == {" "}
    assert " " not in {*cells[2], *cells[3]}


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 500, 6, [0, 100, 200, 300, 400, 500]),
        (-1, 1, 5, [-1, -0.5, 0, 0.5, 1]),
        (0, 1e6, 4, [0, 500_000, 1_000_000]),
        (3, 97, 4, [20, 40, 60, 80]),
    ],
)
def test_ticks_are_round_numbers(low, high, count, expected):
    assert choose_ticks(low, high, count) == expected


def test_a_constant_has_a_range_around_it():
    assert widen_range([5.0, 5.0]) == (4.5, 5.5)
    assert widen_range([0.0]) == (-1.0, 1.0)
    assert widen_range([1.0, 2.0]) == (1.0, 2.0)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("count", [1, 5])
def test_a_chart_fits_its_width(width, count):
    x = np.linspace(0, 250_000, 300)
    curves = [
        curve(f"recipe_{i}", x, 500 * (1 - np.exp(-x * (i + 1) / 1e5)), seeds=8)
        for i in range(count)
    ]
    for each in curves:
        each |= {"low": [y - 9 for y in each["y"]], "high": [y + 9 for y in each["y"]]}
    lines = draw_chart(result(*curves), width).plain.splitlines()
    assert max(map(len, lines)) <= max(width, 43)  # the legend is not cut
    text = "\n".join(lines)
    title = "return, training by steps in CartPole-v1: IQM over seeds"
    assert " ".join(lines).startswith(title)
    assert "00k" in text and "400 ┤" in text
    for index in range(count):
        assert f"recipe_{index}" in text
        assert count == 1 or "ABCDE"[index] in "".join(lines[1:17])


def test_a_threshold_is_a_line_and_a_part_of_the_legend():
    crossed = curve("up", crossing=4_750.0)
    text = draw_chart(result(crossed, threshold=0.475), 60).plain
    assert "╌╌╌" in text
    assert "up    1 seed  last 1  reaches 0.475 at 4,750 steps" in text
    never = curve("up", crossing=None)
    assert "never reaches 2" in draw_chart(result(never, threshold=2), 60).plain
    down = curve("down", y=(3, 1), crossing=5.0)
    assert "falls below 2 at 5 steps" in draw_chart(result(down, threshold=2), 60).plain
    above = curve("above", y=(3, 4), crossing=None)
    assert "always above 2" in draw_chart(result(above, threshold=2), 60).plain


def test_each_environment_has_a_panel_in_which_a_group_has_its_letter():
    curves = [curve("a"), curve("b"), curve("b", y=(-500, -80), environment="Acrobot")]
    first, second = draw_chart(result(*curves), 60).plain.split("\n\n")
    assert "in CartPole-v1" in first and "in Acrobot" in second
    assert "A  a" in first and "B  b" in first
    assert "B  b" in second and "A  " not in second
    assert "-500" in second and "-500" not in first


def test_without_unicode_a_chart_is_ascii():
    text = draw_chart(result(curve("a"), curve("b", y=(1, 0))), 60, ascii=True).plain
    assert text.isascii()
    assert "A" in text and "B" in text


def test_curves_have_colors_only_where_the_terminal_has():
    chart = draw_chart(result(curve()), 60)
    plain, colored = (
        Console(force_terminal=color, color_system="standard" if color else None)
        for color in (False, True)
    )
    with plain.capture() as capture:
        plain.print(chart)
    assert "\x1b" not in capture.get()
    with colored.capture() as capture:
        colored.print(chart)
    assert "\x1b[36m" in capture.get()
    assert COLORS[0] == "cyan"


def test_control_characters_of_a_label_are_escaped():
    assert "\x1b" not in draw_chart(result(curve("a\x1b[2J")), 60).plain
