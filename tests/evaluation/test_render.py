"""Rendering: sizes, and the line that says what is going on."""

import numpy as np
import pytest
from PIL import Image

import rlcli
from rlcli.errors import RlcliError
from rlcli.evaluation.render import _OVERLAY_HEIGHT, _compose_frames, _format_action
from rlcli.loop.evaluator import EvaluationStep


def moment(action=1, length=3, running=2.5, info=()):
    def of_one(value):
        return np.full((1, 1), value)

    return EvaluationStep(
        *((), action if action is None else of_one(action), of_one(0.0)),
        *(of_one(running), of_one(length), dict(info)),
    )


def compose_frame(picture, size=None, overlay=True, **fields):
    return next(_compose_frames([(moment(**fields), picture)], size, overlay))


PICTURE = np.random.default_rng(0).integers(0, 255, (200, 400, 3), np.uint8)


def test_without_an_overlay_the_picture_is_left_as_it_is():
    np.testing.assert_array_equal(compose_frame(PICTURE, overlay=False), PICTURE)


def test_a_line_stands_below_the_picture_and_hides_nothing():
    frame = compose_frame(PICTURE)
    assert frame.shape == (200 + _OVERLAY_HEIGHT, 400, 3)
    np.testing.assert_array_equal(frame[:200], PICTURE)


@pytest.mark.parametrize("fields", [{"action": 2}, {"length": 4}, {"running": 2.6}])
def test_the_overlay_shows_step_return_and_action_at_fixed_places(fields):
    changed = np.any(
        compose_frame(PICTURE) != compose_frame(PICTURE, **fields), axis=(0, 2)
    )
    place = ["length", "running", "action"].index(*fields)
    columns = np.flatnonzero(changed) / 400
    assert np.all((columns > 0.3 * place) & (columns < 0.3 * place + 0.35))


def test_the_overlay_of_the_end_shows_the_success_in_place_of_the_action():
    def end(**info):
        return compose_frame(PICTURE, action=None, info=info)

    changed = np.any(end() != end(energy=2.0, success=1.0), axis=(0, 2))
    assert np.flatnonzero(changed).min() / 400 > 0.6
    np.testing.assert_array_equal(
        end(energy=2.0, success=1.0), end(energy=3.0, success=1.0)
    )


def test_numbers_that_an_episode_has_drawn_are_in_a_line_of_their_own():
    def compose(numbers):
        step = moment()._replace(parameters=numbers)
        return next(_compose_frames([(step, PICTURE)], None, True))

    frame, other = compose({"length": 0.5}), compose({"length": 0.6})
    assert frame.shape == (200 + 2 * _OVERLAY_HEIGHT, 400, 3)
    np.testing.assert_array_equal(
        frame[: 200 + _OVERLAY_HEIGHT], compose_frame(PICTURE)
    )
    changed = np.flatnonzero(np.any(frame != other, axis=(1, 2)))
    assert changed.min() > 200 + _OVERLAY_HEIGHT


def test_the_size_is_that_of_the_whole_frame():
    assert compose_frame(PICTURE, (100, 80), False).shape == (80, 100, 3)
    assert compose_frame(PICTURE, (300, 180), True).shape == (180, 300, 3)


def test_a_small_picture_grows_by_whole_pixels_so_that_the_line_can_be_read():
    small = PICTURE[:50, :100]
    frame = compose_frame(small)
    assert frame.shape == (200 + _OVERLAY_HEIGHT, 400, 3)
    np.testing.assert_array_equal(frame[:200:4, ::4], small)


def test_an_action_is_formatted_briefly():
    assert _format_action(np.int32(3)) == "3"
    assert _format_action(np.array([0.12345, -1.0])) == "0.123 -1"
    assert _format_action(np.arange(6)) == "0 1 2 3 …"
    assert _format_action((np.int32(1), {"a": np.array([2.0])})) == "1 2"


@pytest.mark.slow
def test_a_random_policy_is_filmed_in_a_strip(tmp_path):
    file = rlcli.render("probe-truncation", output=tmp_path / "a.png", overlay=True)
    with Image.open(file) as image:
        assert len(image.getcolors(1 << 20)) > 5


def test_a_misspelled_environment_is_refused_with_the_right_spelling():
    with pytest.raises(RlcliError, match="no run, recipe or environment") as caught:
        rlcli.render("cartpole")
    assert caught.value.hint == "did you mean `CartPole-v1`?"
    with pytest.raises(RlcliError, match="no file or folder `nothing`"):
        rlcli.render("nothing")


def test_what_cannot_be_written_is_refused_before_any_episode(tmp_path):
    with pytest.raises(RlcliError, match="not the name of a video"):
        rlcli.render("no-such-environment", output=tmp_path / "a.avi")
