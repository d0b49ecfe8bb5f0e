"""Observation images: every observation has one, and changes are visible."""

import numpy as np
import pytest
from gymnasium import spaces

from rlcli.environments.observation_image import HEIGHT, WIDTH, observation_image

SPACES = {
    "choice": spaces.Discrete(5, start=2),
    "many choices": spaces.Discrete(5_000),
    "numbers": spaces.Box(-1, 1, (4,), np.float32),
    "one number": spaces.Box(-np.inf, np.inf, (), np.float32),
    "bounded like gymnax's": spaces.Box(-3.4e38, 3.4e38, (3,), np.float32),
    "many numbers": spaces.Box(-np.inf, np.inf, (101,), np.float32),
    "field": spaces.Box(0, 1, (3, 7), np.float32),
    "planes": spaces.Box(0, 1, (10, 10, 4), np.bool_),
    "pixels": spaces.Box(0, 255, (20, 30, 3), np.uint8),
    "grey pixels": spaces.Box(0, 255, (84, 84, 1), np.uint8),
    "large pixels": spaces.Box(0, 255, (400, 700, 3), np.uint8),
    "switches": spaces.MultiBinary(6),
    "several choices": spaces.MultiDiscrete([3, 4]),
    "four axes": spaces.Box(0, 1, (2, 3, 4, 5), np.float32),
    "channels in front": spaces.Box(0, 255, (3, 84, 90), np.uint8),
    "a stack in front": spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "high pixels": spaces.Box(0, 255, (2000, 30, 3), np.uint8),
    "a column": spaces.Box(-1, 1, (200, 1), np.float32),
    "a wide field": spaces.Box(-1, 1, (2, 1000), np.float32),
    "a high field": spaces.Box(-1, 1, (1000, 2), np.float32),
    "wide planes": spaces.Box(0, 1, (2, 1000, 2), np.float32),
    "members": spaces.Dict(
        a=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
        b=spaces.Box(0, 1, (2, 2), np.float32),
    ),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_different_observations_have_different_images_of_one_shape(space):
    space.seed(3)
    first, second = space.sample(), space.sample()
    frames = [observation_image(space, each) for each in (first, second, first)]
    assert frames[0].dtype == np.uint8
    assert frames[0].shape == frames[1].shape == (len(frames[0]), WIDTH, 3)
    assert np.any(frames[0] != frames[0][0, 0])  # it has several colours
    assert not np.array_equal(frames[0], frames[1])
    np.testing.assert_array_equal(frames[0], frames[2])


@pytest.mark.parametrize("name", [each for each in SPACES if each != "members"])
def test_the_height_of_an_image_is_limited(name):
    assert 20 <= len(observation_image(SPACES[name], SPACES[name].sample())) <= HEIGHT


def test_no_row_of_a_wide_matrix_is_dropped():
    space = spaces.Box(-1, 1, (2, 1000), np.float32)
    values = space.sample()
    changed = values.copy()
    changed[1] *= -1
    differs = (
        observation_image(space, values) != observation_image(space, changed)
    ).any(axis=(1, 2))
    assert differs.mean() == 0.5


def test_channels_may_come_first():
    space = spaces.Box(0, 255, (84, 90, 3), np.uint8)
    pixels = space.sample()
    turned = np.moveaxis(pixels, -1, 0)
    other = spaces.Box(0, 255, turned.shape, np.uint8)
    np.testing.assert_array_equal(
        observation_image(space, pixels), observation_image(other, turned)
    )


@pytest.mark.parametrize("shape", [(3,), (30,), (3, 4), (3, 4, 2)])
@pytest.mark.parametrize("bound", [1, np.inf])
def test_nan_and_infinity_are_drawn(shape, bound):
    space = spaces.Box(-bound, bound, shape, np.float32)
    for strange in (np.nan, np.inf, -np.inf):
        obs = np.zeros(shape, np.float32)
        frame = observation_image(space, obs)
        obs[0] = strange
        assert observation_image(space, obs).shape == frame.shape


@pytest.mark.parametrize(
    "space", [spaces.Tuple([]), spaces.Dict({}), spaces.Box(0, 1, (0, 3), np.float32)]
)
def test_empty_observations_have_an_image(space):
    assert len(np.unique(observation_image(space, space.sample()))) > 1


def test_pixels_are_unchanged_and_enlarged_to_fit():
    pixels = np.arange(2 * 160 * 3, dtype=np.uint8).reshape(2, 160, 3)
    frame = observation_image(spaces.Box(0, 255, pixels.shape, np.uint8), pixels)
    np.testing.assert_array_equal(frame, pixels.repeat(2, 0).repeat(2, 1))


def test_a_cell_has_the_colour_of_the_last_plane_that_is_set():
    space = spaces.Box(0, 1, (1, 4, 2), np.bool_)
    planes = np.array([[[0, 0], [1, 0], [0, 1], [1, 1]]], bool)
    colours = observation_image(space, planes)[0, 40::80].tolist()
    assert len({tuple(each) for each in colours}) == 3
    assert colours[2] == colours[3] != colours[1] != colours[0]


def test_a_bar_is_as_long_as_its_number():
    space = spaces.Box(0, 2, (2,), np.float32)
    frame = observation_image(space, np.array([1, 2], np.float32)).astype(int)
    blue = (frame[:, :, 2] - frame[:, :, 0] > 60).sum(axis=1)
    rows = blue[blue > 50]
    assert abs(rows.max() / rows.min() - 2) < 0.05
