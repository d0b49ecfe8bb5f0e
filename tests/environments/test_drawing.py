"""Drawing: anti-aliased shapes at the given positions."""

import numpy as np
import pytest

from rlcli.environments.drawing import PAPER, Canvas


def test_a_canvas_has_the_size_asked_for_and_its_background():
    frame = Canvas(30, 20, "#ff0000").pixels()
    assert frame.shape == (20, 30, 3)
    assert frame.dtype == np.uint8
    np.testing.assert_array_equal(frame, np.broadcast_to([255, 0, 0], frame.shape))


def test_a_box_covers_exactly_its_pixels():
    canvas = Canvas(30, 20, "#000000")
    canvas.box((5, 2), 10, 4, "#ffffff")
    expected = np.zeros((20, 30))
    expected[2:6, 5:15] = 255
    np.testing.assert_array_equal(canvas.pixels()[..., 0], expected)


def test_a_circle_has_its_area_and_soft_edges():
    canvas = Canvas(60, 60, "#000000")
    canvas.circle((30, 30), 20, "#ffffff")
    light = canvas.pixels()[..., 0] / 255
    assert abs(light.sum() / (np.pi * 20**2) - 1) < 0.05
    assert np.any((light > 0.1) & (light < 0.9))


def test_lines_polygons_and_text_are_drawn():
    for shape in ("line", "polygon", "text"):
        canvas = Canvas(60, 60, "#000000")
        if shape == "line":
            canvas.line((10, 10), (50, 40), 4, "#ffffff")
        elif shape == "polygon":
            canvas.polygon([(10, 10), (50, 10), (30, 50)], "#ffffff")
        else:
            canvas.text((30, 30), "S", 30, "#ffffff")
        light = canvas.pixels()[..., 0] / 255
        assert 20 < light.sum() < 1000
        assert light[:5].sum() == light[-5:].sum() == 0


@pytest.mark.parametrize(("given", "same"), [("−1 °", "-1 °"), ("größe", "gr??e")])
def test_letters_that_the_font_lacks_are_replaced(given, same):
    actual, expected = Canvas(60, 60), Canvas(60, 60)
    actual.text((30, 30), given, 12)
    expected.text((30, 30), same, 12)
    np.testing.assert_array_equal(actual.pixels(), expected.pixels())


def test_a_legend_has_every_colour_from_left_to_right_beside_its_name():
    canvas = Canvas(200, 40, "#000000")
    canvas.legend((10, 10), {"red": "#ff0000", "green": "#00ff00"}, size=20)
    frame = canvas.pixels().astype(int)
    assert frame[20, 20].tolist() == [255, 0, 0]
    columns = np.flatnonzero(np.all(frame[20] == [0, 255, 0], axis=-1))
    assert columns.min() > 10 + 20 + 20  # beyond the swatch and the name of the first
    assert np.ptp(columns) == 19


def draw_shapes(canvas, offset):
    canvas.circle((12 + offset, 20), 4, "#ff0000")
    canvas.line((5, 30 + offset), (50, 35), 1.3, "#00ff00")
    canvas.text((40, 10 + offset), "Sg", 14, "#0000ff", anchor="ls")
    canvas.polygon([(-9, 50), (30, 70 + offset), (20, 40)], "#ffffff")


def test_a_copy_shows_what_was_drawn_before_and_after_it():
    expected, background = Canvas(60, 60), Canvas(60, 60)
    for canvas in (expected, background):
        draw_shapes(canvas, 0)
    copies = [background.copy(), background.copy()]
    draw_shapes(copies[0], 5)  # which the other copy does not show
    np.testing.assert_array_equal(copies[1].pixels(), expected.pixels())
    draw_shapes(expected, 5)
    np.testing.assert_array_equal(copies[0].pixels(), expected.pixels())


@pytest.mark.parametrize("x", [-30.0, -0.4, 3.3, 25.0, 58.9, 90.0])
def test_only_the_area_drawn_on_is_computed_and_nothing_is_missed(x):
    canvas, whole = Canvas(60, 60), Canvas(60, 60)
    canvas.pixels()
    for each in (canvas, whole):
        draw_shapes(each, x)
        each.box((x, 2.5), 7.3, 4.1, "#123456", radius=2)
    whole.box((0, 0), 1, 1, PAPER)  # the corners, so that everything is computed
    whole.box((59, 59), 1, 1, PAPER)
    np.testing.assert_array_equal(canvas.pixels(), whole.pixels())
