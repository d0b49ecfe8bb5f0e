"""Films: encodes frames as a GIF, an mp4 or a film strip (png).

Frames are `[H, W, 3]` uint8, arrive one by one, and are stored compressed. The size of
a film is that of its largest frame; smaller ones are centred.
"""

import io
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
from PIL import Image

from rlcli.registry.libraries import import_library, require_extra
from rlcli.runs.files import check_output, write_output

MAX_FRAMES = 3_000  # of a video: episodes of some environments never end
_COLOURS = 256  # of a GIF's palette
_BITS = 5  # per channel of the colour histogram
_SAMPLES = 1 << 14  # pixels sampled for the palette
_FRAMES, _COLUMNS, _GAP = 8, 4, 6  # of a strip; the gap in pixels
_DARK = (17, 24, 39)


class Reel:
    """Compressed frames and their colour histogram."""

    def __init__(
        self, frames: Iterable[np.ndarray], max_frames: int = MAX_FRAMES
    ) -> None:
        """Takes at most `max_frames` frames, and warns if there are more."""
        self._frames: list[bytes] = []
        self._sizes: list[tuple[int, int]] = []  # (width, height)
        # For each coarse colour: its count, and one exact colour.
        self._counts = np.zeros(1 << 3 * _BITS, np.int64)
        self._colours = np.zeros((1 << 3 * _BITS, 3), np.uint8)
        iterator = iter(frames)
        for frame in itertools.islice(iterator, max_frames):
            self._add(np.ascontiguousarray(frame, np.uint8))
        if next(iterator, None) is not None:
            warning = f"warning: the video ends after {max_frames:,} frames"
            print(warning, file=sys.stderr)

    def _add(self, frame: np.ndarray) -> None:
        self._sizes.append((frame.shape[1], frame.shape[0]))
        flat = frame.reshape((-1, 3))
        red, green, blue = (
            flat[:, channel].astype(np.uint16) >> (8 - _BITS) for channel in range(3)
        )
        index = (red << 2 * _BITS) | (green << _BITS) | blue
        counts = np.bincount(index, minlength=self._counts.size)
        is_new = (counts > 0) & (self._counts == 0)
        if np.any(is_new):  # seldom: writing all pixels would take most of the time
            pixels = np.flatnonzero(is_new[index])
            self._colours[index[pixels]] = flat[pixels]
        self._counts += counts
        # Drawings compress well: this takes 1 ms, and saves 98 % of the memory.
        self._frames.append(lz4.frame.compress(frame.tobytes()))

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> Image.Image:
        data = lz4.frame.decompress(self._frames[index])
        image = Image.frombytes("RGB", self._sizes[index], data)
        size = np.max(self._sizes, axis=0)
        if np.array_equal(image.size, size):
            return image
        left, top = (size - image.size) // 2
        framed = Image.new("RGB", tuple(size.tolist()), _DARK)
        framed.paste(image, (int(left), int(top)))
        return framed

    def __iter__(self) -> Iterator[Image.Image]:
        return (self[index] for index in range(len(self)))

    def palette(self) -> Image.Image:
        """An image with a palette for all frames: exact if they have few colours."""
        present = np.flatnonzero(self._counts)
        if len(present) > _COLOURS:
            # In proportion to their counts, and at least once each.
            share = self._counts[present] / self._counts.sum()
            present = present.repeat(np.maximum(1, share * _SAMPLES).astype(int))
        pixels = self._colours[present]
        if len(set(self._sizes)) > 1:  # the colour around smaller frames
            pixels = np.append(pixels, np.array([_DARK], np.uint8), axis=0)
        return Image.fromarray(pixels[None]).quantize(
            _COLOURS, Image.Quantize.MEDIANCUT
        )


def encode_gif(reel: Reel, fps: float) -> bytes:
    """Encodes a GIF that repeats forever; its durations are multiples of 10 ms."""
    # One palette for all frames: less flicker, and a fraction of the size.
    palette = reel.palette()
    frames = (
        image.quantize(palette=palette, dither=Image.Dither.NONE) for image in reel
    )
    return join_gif(frames, 10 * max(2, round(100 / fps)), optimize=False)


def join_gif(images: Iterator[Image.Image], duration: float, **options: Any) -> bytes:
    """Encodes images as a GIF; `duration` is that of each in milliseconds."""
    data = io.BytesIO()
    options |= {"save_all": True, "append_images": images, "loop": 0}
    next(images).save(data, format="GIF", duration=duration, **options)
    return data.getvalue()


def encode_mp4(reel: Reel, fps: float) -> bytes:
    """Encodes H.264 in an mp4, which browsers can play, with PyAV (https://pyav.org)."""
    av: Any = import_library("av", "mp4")
    data = io.BytesIO()
    with av.open(data, "w", format="mp4") as film:
        stream = film.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        # yuv420p has half the colour resolution, so both sides have to be even.
        stream.width, stream.height = (side + side % 2 for side in reel[0].size)
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "18"}
        for image in reel:
            even = Image.new("RGB", (stream.width, stream.height))
            even.paste(image)
            film.mux(stream.encode(av.VideoFrame.from_image(even)))
        film.mux(stream.encode())
    return data.getvalue()


def encode_strip(reel: Reel, fps: float) -> bytes:
    """Encodes a png with up to eight evenly spaced frames, in rows."""
    del fps  # a still image
    count = min(_FRAMES, len(reel))
    indices = np.linspace(0, len(reel) - 1, count).round().astype(int)
    columns = min(_COLUMNS, count)
    rows = -(-count // columns)
    width, height = reel[0].size
    size = (columns * (width + _GAP) + _GAP, rows * (height + _GAP) + _GAP)
    sheet = Image.new("RGB", size, _DARK)
    for place, index in enumerate(indices):
        row, column = divmod(place, columns)
        corner = (_GAP + column * (width + _GAP), _GAP + row * (height + _GAP))
        sheet.paste(reel[int(index)], corner)
    data = io.BytesIO()
    sheet.save(data, format="PNG", optimize=True)
    return data.getvalue()


ENCODERS: dict[str, Callable[[Reel, float], bytes]] = {
    ".gif": encode_gif,
    ".mp4": encode_mp4,
    ".png": encode_strip,
}


def check_target(target: Path) -> None:
    """Refuses a file that cannot be written, before any episode runs.

    Its suffix has to be in `ENCODERS`, and what writes that format installed.
    """
    check_output(target, "a video", [*ENCODERS])
    if target.suffix.lower() == ".mp4":
        require_extra("mp4", "writing an mp4")


def write_film(target: Path, frames: Iterable[np.ndarray], fps: float) -> None:
    """Writes frames in the format of the file's suffix, at `fps` frames per second."""
    check_target(target)
    data = ENCODERS[target.suffix.lower()](Reel(frames), fps)
    write_output(target, data)
