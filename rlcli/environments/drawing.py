"""Drawing: a canvas for the images of native environments; Pillow, no display."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SCALE = 3  # supersampling: Pillow does not anti-alias shapes

INK = "#1f2937"
GREY = "#9ca3af"
MIST = "#e5e7eb"
PAPER = "#fafaf9"
BLUE = "#3b6fb6"
WOOD = "#d08c4a"
RED = "#c2413a"
GREEN = "#4d8f5c"

Point = tuple[float, float]  # x to the right, y downward, in pixels


class Canvas:
    """An anti-aliased image of `width` x `height` pixels to draw on."""

    def __init__(self, width: int, height: int, background: str = PAPER) -> None:
        self._image = Image.new("RGB", (width * SCALE, height * SCALE), background)
        self._draw = ImageDraw.Draw(self._image)
        # Without supersampling, and the corners of what was drawn since.
        self._pixels = Image.new("RGB", (width, height), background)
        self._area: list[Point] = []

    def copy(self) -> Canvas:
        """Returns a copy to draw on, for a background that many images share."""
        result = copy.copy(self)
        result._image = self._image.copy()
        result._draw = ImageDraw.Draw(result._image)
        result._pixels, result._area = self._reduce(), []
        return result

    def polygon(self, points: Sequence[Point], fill: str) -> None:
        """Fills the polygon between `points`."""
        self._draw.polygon([_scale_point(point) for point in points], fill)
        self._area += points

    def box(
        self, corner: Point, width: float, height: float, fill: str, radius: float = 0
    ) -> None:
        """Fills a rectangle with rounded corners; `corner` is the upper left one."""
        x, y = _scale_point(corner)
        # Pillow's boxes include their last pixel.
        end = (x + width * SCALE - 1, y + height * SCALE - 1)
        self._draw.rounded_rectangle((x, y, *end), radius * SCALE, fill)
        self._area += [corner, (corner[0] + width, corner[1] + height)]

    def circle(self, centre: Point, radius: float, fill: str) -> None:
        """Fills a circle."""
        self._draw.circle(_scale_point(centre), radius * SCALE, fill)
        x, y = centre
        self._area += [(x - radius, y - radius), (x + radius, y + radius)]

    def line(self, start: Point, end: Point, width: float, fill: str) -> None:
        """Draws a straight line with round ends."""
        self._draw.line(
            [_scale_point(start), _scale_point(end)], fill, round(width * SCALE)
        )
        for point in (start, end):  # their areas contain that of the line
            self.circle(point, width / 2, fill)

    def text(
        self,
        position: Point,
        text: str,
        size: float,
        fill: str = INK,
        anchor: str = "mm",
    ) -> None:
        """Writes `text` at a point: its middle, or Pillow's `anchor`.

        Pillow's default font has few characters beyond ASCII; others become `?`.
        """
        text = "".join(map(_printable_letter, text))
        where, font = _scale_point(position), _font(size)
        self._draw.text(where, text, fill, font, anchor)
        left, top, right, bottom = self._draw.textbbox(where, text, font, anchor)
        self._area += [(left / SCALE, top / SCALE), (right / SCALE, bottom / SCALE)]

    def legend(
        self, corner: Point, colours: Mapping[str, str], size: float = 14
    ) -> None:
        """Draws a legend of colours `{name: fill}` from left to right."""
        x, y = corner
        for name, fill in colours.items():
            self.box((x - 1, y - 1), size + 2, size + 2, GREY, radius=4)
            self.box((x, y), size, size, fill, radius=3)
            self.text((x + 1.4 * size, y + size / 2), name, size, anchor="lm")
            x += round(3 * size + _font(size).getlength(name) / SCALE)

    def flag(self, foot: Point, height: float) -> None:
        """Draws a green flag, the symbol of a goal."""
        x, y = foot[0], foot[1] - height
        self.line(foot, (x, y), height / 17, INK)
        pennant = [(x, y), (x + 0.44 * height, y + 0.19 * height)]
        self.polygon([*pennant, (x, y + 0.38 * height)], GREEN)

    def walker(self, centre: Point, size: float, coat: str) -> None:
        """Draws a person from the front, in a square of that size."""
        share = size / 100
        x, y = centre

        def box(left: float, top: float, wide: float, high: float, fill: str) -> None:
            corner = (x + left * share, y + top * share)
            self.box(
                corner, wide * share, high * share, fill, radius=high / 2.4 * share
            )

        for side in (-9, 9):
            box(side - 6, 28, 12, 9, INK)
        box(-19, -4, 38, 36, coat)
        self.circle((x, y - 14 * share), 15 * share, "#f2c9a1")
        box(-16, -31, 32, 13, INK)
        for side in (-5, 5):
            self.circle((x + side * share, y - 13 * share), 2 * share, INK)

    def pixels(self) -> np.ndarray:
        """Returns the image, `[height, width, 3]` uint8."""
        return np.asarray(self._reduce())

    def _reduce(self) -> Image.Image:
        """The image without supersampling.

        Computed only where it was drawn on: this takes most of the time of a drawing.
        """
        if not self._area:
            return self._pixels
        low = np.floor(np.min(self._area, axis=0)) - 1
        high = np.ceil(np.max(self._area, axis=0)) + 1
        corners = np.clip([low, high], 0, self._pixels.size).astype(int)
        if np.all(corners[0] < corners[1]):
            box = tuple((corners * SCALE).ravel().tolist())
            area = self._image.reduce(SCALE, box)
            self._pixels = self._pixels.copy()
            self._pixels.paste(area, tuple(corners[0].tolist()))
        self._area = []
        return self._pixels


@functools.cache
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SCALE)


@functools.cache
def _printable_letter(letter: str) -> str:
    """Replaces a letter that the font lacks, which it would draw as an empty box."""
    if letter == "−":
        return "-"
    masks = (_font(12).getmask(character) for character in ("\uffff", letter))
    box, letter_mask = map(bytes, masks)  # pyright: ignore[reportArgumentType] # it is one
    return "?" if letter_mask == box else letter


def _scale_point(point: Point) -> Point:
    return point[0] * SCALE, point[1] * SCALE
