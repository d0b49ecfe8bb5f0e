"""RGB image: converts whatever `render` of an environment returns."""

from typing import Any

import numpy as np
from PIL import Image

from rlcli.errors import RlcliError

_CHANNELS = (1, 3, 4)  # grey, RGB, RGBA
_TOLERANCE = 1e-3  # of floats beyond their range, as interpolation returns


def to_rgb(image: Any, name: str) -> np.ndarray:
    """Converts an image that an environment has drawn into `[H, W, 3]` uint8.

    An image is `[H, W]`, or `[H, W, C]` or `[C, H, W]` with 1, 3 or 4 channels: grey,
    RGB, or RGBA, which is drawn on white. Its numbers are bools, integers from 0 to
    255, or floats: from 0 to 1 if none is larger, else to 255. Of several images,
    `rgb_array_list` of Gymnasium, the last one is the newest. Images of Pillow are
    images, too. The result is a copy. `name` begins the message of the `RlcliError`
    about anything else.
    """
    try:
        array = _to_array(image)
        pixels = _to_bytes(_channels_last(array))
    except (TypeError, ValueError) as error:
        raise RlcliError(
            f"{name}: `render` returned {error}, not an image",
            "return an array [height, width, 3] of uint8; `rlcli.environments."
            "rgb_image.to_rgb` lists what is converted",
        ) from error
    if pixels.shape[-1] == 4:
        alpha = pixels[..., 3:] / 255
        pixels = (pixels[..., :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)
    return np.array(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _to_array(image: Any) -> np.ndarray:
    """The array of the newest image."""
    while isinstance(image, list | tuple) and image and _is_image(image[-1]):
        image = image[-1]
    if isinstance(image, Image.Image):
        image = image.convert("RGBA")
    try:
        array = np.asarray(image)
    except ValueError:  # lists of different lengths
        raise ValueError("lists of different lengths") from None
    if array.ndim == 4 and len(array):
        array = array[-1]
    if array.dtype.kind not in "biuf" or not array.ndim:
        kind = "None" if image is None else type(image).__name__
        raise TypeError(kind)
    return array


def _is_image(value: Any) -> bool:
    return isinstance(value, Image.Image) or getattr(value, "ndim", 0) >= 2


def _channels_last(array: np.ndarray) -> np.ndarray:
    """An image `[H, W, C]`."""
    image = array[..., None] if array.ndim == 2 else array
    if image.ndim == 3 and image.shape[-1] not in _CHANNELS:
        image = np.moveaxis(image, 0, -1)
    if image.ndim != 3 or image.shape[-1] not in _CHANNELS or not image.size:
        raise ValueError(f"an array of shape {array.shape}")
    return image


def _to_bytes(image: np.ndarray) -> np.ndarray:
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind == "b":
        return image * np.uint8(255)
    low, high = float(image.min()), float(image.max())
    is_unit = image.dtype.kind == "f" and high <= 1 + _TOLERANCE
    limit, slack = (1, _TOLERANCE) if is_unit else (255, 0.5)
    if not (-slack <= low and high <= limit + slack):  # also if they are NaN
        raise ValueError(f"numbers from {low:g} to {high:g}")
    scaled = image.astype(np.float64) * (255 / limit)
    return np.clip(scaled, 0, 255).round().astype(np.uint8)
