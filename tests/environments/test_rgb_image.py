"""RGB images: every form of an image that environments return, worked out by hand."""

import numpy as np
import pytest
from PIL import Image

from rlcli.environments.rgb_image import to_rgb
from rlcli.errors import RlcliError

HEIGHT, WIDTH = 6, 8
GREY = np.zeros((HEIGHT, WIDTH))
GREY[:, :3] = 200
GREY_RGB = np.repeat(GREY[..., None], 3, -1)
COLOURS = np.stack([GREY, GREY / 2, np.zeros_like(GREY)], axis=-1)  # 200, 100, 0
BYTES = COLOURS.astype(np.uint8)
BLACK = np.zeros_like(BYTES)
BOOLS = GREY > 0
ALPHA = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
FAINT = np.full((HEIGHT, WIDTH, 1), 51, np.uint8)  # opacity 0.2
SHOWN = {
    "uint8": (BYTES, COLOURS),
    "float64 from 0 to 1": (COLOURS / 255, COLOURS),
    "float32 from 0 to 1": ((COLOURS / 255).astype(np.float32), COLOURS),
    "float16 from 0 to 1": ((COLOURS / 255).astype(np.float16), COLOURS),
    "slightly above 1": (1.0001 * COLOURS / 200, COLOURS * 255 / 200),
    "float from 0 to 255": (COLOURS, COLOURS),
    "black floats": (BLACK.astype(float), BLACK),
    "int64": (COLOURS.astype(np.int64), COLOURS),
    "bool": (BOOLS, np.repeat(255 * BOOLS[..., None], 3, -1)),
    "bool with channels": (COLOURS > 0, 255 * (COLOURS > 0)),
    "RGBA": (np.concatenate([BYTES, ALPHA], -1), COLOURS),
    "transparent": (np.concatenate([BYTES, FAINT], -1), 0.2 * COLOURS + 0.8 * 255),
    "[H, W, 1]": (GREY[..., None].astype(np.uint8), GREY_RGB),
    "[H, W]": (GREY.astype(np.uint8), GREY_RGB),
    "[C, H, W]": (np.moveaxis(BYTES, -1, 0), COLOURS),
    "[1, H, W]": (GREY[None].astype(np.uint8), GREY_RGB),
    "list of arrays": ([BLACK, BYTES], COLOURS),
    "list of arrays of several sizes": ([np.zeros((3, 3, 3)), BYTES], COLOURS),
    "array of several": (np.stack([BLACK, BYTES]), COLOURS),
    "lists of numbers": (BYTES.tolist(), COLOURS),
    "Pillow": (Image.fromarray(BYTES), COLOURS),
    "Pillow, grey": (Image.fromarray(GREY.astype(np.uint8)), GREY_RGB),
}


@pytest.mark.parametrize("form", SHOWN)
def test_every_form_of_an_image_becomes_the_same_pixels(form):
    image, expected = SHOWN[form]
    pixels = to_rgb(image, "environment `mine`")
    assert pixels.shape == (HEIGHT, WIDTH, 3) and pixels.dtype == np.uint8
    np.testing.assert_allclose(pixels, np.round(expected))


def test_the_pixels_are_a_copy():
    frame = BYTES.copy()
    pixels = to_rgb(frame, "environment `mine`")
    frame[...] = 9
    np.testing.assert_array_equal(pixels, BYTES)
    pixels[...] = 0  # and may be written to


@pytest.mark.parametrize(
    ("image", "what"),
    [
        (None, "None"),
        ("text", "str"),
        ({"image": BYTES}, "dict"),
        ([], "an array of shape (0,)"),
        (np.float32(3), "float32"),
        (np.zeros(4), "an array of shape (4,)"),
        (np.zeros((6, 4, 5), np.uint8), "an array of shape (6, 4, 5)"),
        (np.zeros((0, 6, 3), np.uint8), "an array of shape (0, 6, 3)"),
        (np.full((4, 6, 3), 256), "numbers from 256 to 256"),
        (np.full((4, 6, 3), -1.0), "numbers from -1 to -1"),
        (np.full((4, 6, 3), np.nan), "numbers from nan to nan"),
        ([[1, 2], [3]], "lists of different lengths"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(image, what):
    with pytest.raises(RlcliError) as caught:
        to_rgb(image, "environment `mine`")
    message = caught.value.message
    assert message == f"environment `mine`: `render` returned {what}, not an image"
