"""Films: what was drawn is what is seen, in every format."""

import io
import sys

import numpy as np
import pytest
from PIL import Image
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.evaluation import films
from rlcli.registry.libraries import install_command

RED, BLUE, RARE = (200, 10, 20), (10, 20, 200), (17, 255, 33)


def plain_frame(colour, size=(12, 16)):
    return np.full((*size, 3), colour, np.uint8)


def moving_frames(count=20):
    """A bright square that wanders over a dark ground; its last picture has a dot."""
    frames = []
    for time in range(count):
        frame = plain_frame((20, 30, 60), (30, 40))
        frame[5:15, time : time + 10] = (250, 200, 90)
        frames.append(frame)
    frames[-1][-1, -1] = RARE
    return frames


def read_frames(data):
    """The frames of a GIF, as they are shown."""
    with Image.open(io.BytesIO(data)) as image:
        for index in range(image.n_frames):
            image.seek(index)
            yield np.asarray(image.convert("RGB"))


def test_a_gif_has_every_picture_in_its_colours_also_those_that_come_late():
    frames = moving_frames()
    found = [*read_frames(films.encode_gif(films.Reel(frames), 50))]
    np.testing.assert_array_equal(found, frames)


def test_of_many_colours_a_gif_has_near_ones_and_forgets_no_rare_one():
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    many = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None], 128), -1)
    frames = [many, many[::-1], many.copy()]
    frames[2][0, :4] = RARE
    found = [*read_frames(films.encode_gif(films.Reel(frames), 50))]
    far = np.abs(np.array(found).astype(int) - frames).max(-1)
    assert np.mean(far) < 12
    assert far[2, 0, :4].max() < 40


def test_a_gif_counts_hundredths_of_a_second_two_at_least():
    for fps, milliseconds in ((50, 20), (25, 40), (100, 20), (30, 30)):
        data = films.encode_gif(films.Reel(moving_frames(3)), fps)
        with Image.open(io.BytesIO(data)) as image:
            assert image.info["duration"] == milliseconds
            assert image.info["loop"] == 0


def test_a_strip_goes_from_the_first_picture_to_the_last():
    frames = [plain_frame((10 * time, 0, 0)) for time in range(22)]
    with Image.open(io.BytesIO(films.encode_strip(films.Reel(frames), 50))) as image:
        sheet = np.asarray(image)
    height, width = 12 + films._GAP, 16 + films._GAP
    assert sheet.shape == (2 * height + films._GAP, 4 * width + films._GAP, 3)
    middles = sheet[height // 2 :: height, width // 2 :: width, 0]
    shown = middles[:2, :4].ravel()
    assert shown[0] == 0 and shown[-1] == 210
    assert np.all(np.diff(shown.astype(int)) == 30)


def test_a_strip_of_few_pictures_has_these_and_no_empty_places():
    with Image.open(
        io.BytesIO(films.encode_strip(films.Reel(moving_frames(2)), 50))
    ) as image:
        assert image.size == (2 * (40 + films._GAP) + films._GAP, 30 + 2 * films._GAP)


def test_an_mp4_has_every_picture_in_its_time():
    av = pytest.importorskip("av")
    frames = [frame[:29, :39] for frame in moving_frames()]  # odd sides
    with av.open(io.BytesIO(films.encode_mp4(films.Reel(frames), 25))) as film:
        found = [each.to_ndarray(format="rgb24") for each in film.decode(video=0)]
        assert film.streams.video[0].average_rate == 25
    assert len(found) == len(frames)
    cut = np.array(found)[:, :29, :39].astype(int)
    assert np.abs(cut - frames).mean() < 8  # half of the colours' resolution is lost


def test_an_mp4_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(RlcliError) as caught:
        films.encode_mp4(films.Reel(moving_frames(2)), 25)
    assert caught.value.hint == install_command("mp4")


def test_the_suffix_selects_the_format_and_others_are_refused(tmp_path):
    films.write_film(tmp_path / "new" / "a.GIF", moving_frames(2), 50)
    films.write_film(tmp_path / "a.png", moving_frames(2), 50)
    assert (tmp_path / "new" / "a.GIF").read_bytes()[:4] == b"GIF8"
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(RlcliError, match="is not the name of a video") as caught:
        films.check_target(tmp_path / "a.avi")
    assert mentions(caught.value.hint, "`.gif`", "`.mp4`", "`.png`")


def test_a_video_that_is_too_long_ends_with_a_warning(capsys):
    assert len(films.Reel(moving_frames(4), 3)) == 3
    assert "ends after 3 frames" in capsys.readouterr().err
    assert len(films.Reel(moving_frames(3), 3)) == 3
    assert capsys.readouterr().err == ""


def test_the_size_of_a_film_is_that_of_its_largest_frame_and_others_are_centred():
    reel = films.Reel([plain_frame(RED), plain_frame(BLUE, (14, 20))])
    first, second = map(np.asarray, reel)
    assert first.shape == second.shape == (14, 20, 3)
    expected = np.zeros((14, 20, 3), np.uint8) + np.array((17, 24, 39), np.uint8)
    expected[1:13, 2:18] = RED
    np.testing.assert_array_equal(first, expected)
    assert np.all(second == BLUE)
    with Image.open(io.BytesIO(films.encode_gif(reel, 10))) as gif:
        assert (gif.size, gif.n_frames) == ((20, 14), 2)
        np.testing.assert_allclose(np.asarray(gif.convert("RGB")), expected, atol=4)
