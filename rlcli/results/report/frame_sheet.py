"""Frame sheet: the frames of an episode as one image, which the page plays.

The page can pause it and move it to a step, unlike an animated image, and needs no
video player.
"""

import base64
import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, features

from rlcli.errors import RlcliError

MAX_FRAMES = 120
_LONGEST_SIDE = 300  # pixels of a frame
_SHORTEST_SIDE = 160  # smaller images are enlarged by an integer
_COLUMNS = 10
_PAPER = 224  # of 255: all channels of white paper are above
_QUALITY = 70


class FrameSheet(NamedTuple):
    """Frames in rows of `columns`, as a data URI."""

    image: str
    width: int  # of a frame
    height: int
    columns: int
    steps: Sequence[int]  # of each frame
    every: int  # steps from one frame to the next
    is_drawing: bool  # on white paper, which the page makes dark in its dark theme


class FrameSheetMaker:
    """Collects at most `MAX_FRAMES` images of an episode.

    `draw` returns the current image, `[H, W, 3]` uint8. The size of a frame is that of
    the largest image; smaller ones are centred.
    """

    def __init__(self, draw: Callable[[], np.ndarray], length: int) -> None:
        self._draw = draw
        self._every = max(1, -(-length // (MAX_FRAMES - 1)))
        self._frames: list[Image.Image] = []
        self._steps: list[int] = []
        self._reason = ""

    def add(self, step: int, *, is_last: bool = False) -> None:
        """Draws the environment, if a frame is due at this step."""
        if len(self._frames) == MAX_FRAMES:  # the replay is longer than expected
            self._frames, self._steps = self._frames[::2], self._steps[::2]
            self._every *= 2
        if self._reason or (step % self._every and not is_last):
            return
        try:
            self._frames.append(_resize(Image.fromarray(self._draw())))
            self._steps.append(step)
        except RlcliError as error:
            self._reason = error.message
        except Exception as error:  # noqa: BLE001 - a report does not need the frames
            self._reason = f"the environment cannot be drawn: {error}"

    def finish(self) -> tuple[FrameSheet | None, str]:
        """The frames, or None and the reason why there is none."""
        if self._reason or not self._frames:
            return None, self._reason
        try:
            return self._join(), ""
        except Exception as error:  # noqa: BLE001 - a report does not need the frames
            return None, f"the frames cannot be encoded: {error}"

    def _join(self) -> FrameSheet:
        width, height = np.max([frame.size for frame in self._frames], axis=0).tolist()
        columns = min(_COLUMNS, len(self._frames))
        rows = -(-len(self._frames) // columns)
        sheet = Image.new("RGB", (columns * width, rows * height))
        for place, frame in enumerate(self._frames):
            row, column = divmod(place, columns)
            left = column * width + (width - frame.width) // 2
            sheet.paste(frame, (left, row * height + (height - frame.height) // 2))
        uri = encode_image(sheet)
        is_drawing = bool(np.mean(np.asarray(self._frames[0]).min(-1) > _PAPER) > 0.5)
        steps = self._steps
        return FrameSheet(uri, width, height, columns, steps, self._every, is_drawing)


def encode_image(image: Image.Image) -> str:
    """An image as a data URI, as small as Pillow can make it."""
    kind = "webp" if features.check("webp") else "png"
    best = None
    for options in ({"lossless": True}, {"quality": _QUALITY}):
        data = io.BytesIO()
        image.save(data, format=kind, **(options if kind == "webp" else {}))
        if best is None or len(data.getvalue()) < len(best):
            best = data.getvalue()
    assert best is not None
    return f"data:image/{kind};base64,{base64.b64encode(best).decode()}"


def _resize(image: Image.Image) -> Image.Image:
    longest = max(image.size)
    if longest > _LONGEST_SIDE:
        scale, filter = _LONGEST_SIDE / longest, Image.Resampling.LANCZOS
    else:  # an integer, for crisp pixels
        scale = max(1, _SHORTEST_SIDE // longest)
        filter = Image.Resampling.NEAREST
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), filter)
