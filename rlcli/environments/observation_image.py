"""Observed: a drawing of an observation, for environments that have no drawing."""

from __future__ import annotations

import colorsys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcli.environments.drawing import BLUE, INK, MIST, PAPER, RED, Canvas
from rlcli.spaces import bounds

WIDTH = 320  # pixels of every picture
HEIGHT = 480  # at most, of what is no list of members
_MARGIN = 12
_ROW = 18  # pixels of a number's bar
_MAX_BARS = 24  # numbers that have a bar each; more of them are cells
_CELLS_ACROSS = 64  # cells in a row of more numbers than that
_CELL = 24  # pixels of a cell's sides, at least, while there is room
_CHANNELS = 1, 3, 4  # of an image: grey, in colours, a stack
_DARK = (17, 24, 39)


def observation_image(space: gymnasium.Space, obs: Any) -> np.ndarray:
    """An observation as a picture `[H, 320, 3]` uint8; H depends on the space alone.

    Pixels are shown as they are, planes and fields as cells (a colour for each plane),
    few numbers as bars between their bounds, a choice as one of a row of cells, and the
    members of a Dict or a Tuple below each other, by name. Bytes `[C, H, W]` are an
    image where C can only be its channels. What is no number is drawn as 0.
    """
    if isinstance(space, spaces.Tuple):
        members = {str(i): (member, obs[i]) for i, member in enumerate(space.spaces)}
        return _stack_members(members)
    if isinstance(space, spaces.Dict):
        return _stack_members(
            {name: (member, obs[name]) for name, member in space.items()}
        )
    if isinstance(space, spaces.Discrete):
        return _draw_choice(int(space.n), int(obs) - int(space.start))
    values = np.asarray(obs)
    if not values.size:
        return _draw_title("nothing")
    if values.dtype == np.uint8 and values.ndim == 3:
        return _draw_image(space, values)
    if values.ndim == 3:
        return _enlarge(_draw_planes(_fractions(space, values)), _CELL)
    field = values.ndim == 2 and 1 not in values.shape
    if field or values.size > _MAX_BARS:
        flat = _fractions(space, values)
        return _enlarge(_heat_map(flat if field else _fold(flat.ravel())), _CELL)
    shares = _fractions(space, np.stack([values, np.zeros_like(values)]))
    return _draw_bars(values.ravel(), *shares.reshape((2, -1)))


def _draw_image(space: gymnasium.Space, values: np.ndarray) -> np.ndarray:
    """Bytes, with their channels in front or behind."""
    first = values.shape[0] in _CHANNELS and values.shape[-1] not in _CHANNELS
    axis = 0 if first else -1
    pixels = np.moveaxis(values, axis, -1)
    if pixels.shape[-1] == 3:
        return _enlarge(pixels)
    return _enlarge(_draw_planes(np.moveaxis(_fractions(space, values), axis, -1)))


def _fractions(space: gymnasium.Space, values: np.ndarray) -> np.ndarray:
    """Where numbers lie between their bounds, from 0 to 1; without bounds by arctan."""
    low, high = (bound.astype(np.float64) for bound in bounds(space))
    values = np.where(np.isnan(values), 0, values).astype(np.float64)
    # Some spaces have the largest number for a bound where they mean none.
    finite = (np.abs(low) < 1e30) & (np.abs(high) < 1e30) & (high > low)
    width = np.where(finite, high - low, 1.0)
    fractions = np.clip((values - np.where(finite, low, 0.0)) / width, 0.0, 1.0)
    return np.where(finite, fractions, 0.5 + np.arctan(values) / np.pi)


def _draw_planes(shares: np.ndarray) -> np.ndarray:
    """Planes `[H, W, C]` as one picture: every plane has a colour, the last is on top.

    Where a plane has its least value, those below show through.
    """
    image = np.broadcast_to(np.array(_DARK, np.float64), (*shares.shape[:2], 3))
    for plane in range(shares.shape[-1]):
        hue = plane * 0.618 % 1.0  # the golden ratio: neighbours differ
        colour = 255 * np.array(colorsys.hsv_to_rgb(hue, 0.65, 0.95))
        if shares.shape[-1] == 1:
            colour = np.full(3, 255.0)
        share = shares[..., plane, None]
        image = (1 - share) * image + share * colour
    return image.round().astype(np.uint8)


def _heat_map(shares: np.ndarray) -> np.ndarray:
    """Numbers `[H, W]` from dark blue over red to yellow."""
    stops = np.array([_DARK, (59, 111, 182), (194, 65, 58), (250, 220, 110)])
    channels = [np.interp(shares, np.linspace(0, 1, 4), stops[:, i]) for i in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _fold(shares: np.ndarray) -> np.ndarray:
    """A long vector as rows of cells; the last row is filled up with zeros."""
    across = min(_CELLS_ACROSS, int(np.ceil(np.sqrt(shares.size))))
    rows = -(-shares.size // across)
    return np.resize(np.pad(shares, (0, rows * across - shares.size)), (rows, across))


def _enlarge(image: np.ndarray, min_size: int = 0) -> np.ndarray:
    """The picture with crisp pixels, in the middle of `WIDTH`, not above `HEIGHT`.

    Its proportions are kept, but for cells, whose sides are of at `min_size` so many
    pixels while there is room: none is left out for the sake of the other axis.
    """
    room = np.array([HEIGHT, WIDTH])
    steps = -(-np.array(image.shape[:2]) // room)
    if not min_size:
        steps[:] = steps.max()
    image = image[:: steps[0], :: steps[1]]
    max_scale = room // image.shape[:2]
    tall, wide = np.maximum(max_scale.min(), np.minimum(max_scale, min_size))
    cells = image.repeat(tall, 0).repeat(wide, 1)
    frame = np.empty((cells.shape[0], WIDTH, 3), np.uint8)
    frame[:] = _DARK
    left = (WIDTH - cells.shape[1]) // 2
    frame[:, left : left + cells.shape[1]] = cells
    return frame


def _draw_choice(count: int, index: int) -> np.ndarray:
    """One of a row of cells, and its number."""
    canvas = Canvas(WIDTH, 64)
    canvas.text((WIDTH / 2, 18), f"{index} of {count}", 15)
    room = WIDTH - 2 * _MARGIN
    side = min(room / count, 24)
    left = (WIDTH - side * count) / 2
    canvas.box((left, 34), side * count, 20, MIST)
    canvas.box((left + side * index, 34), max(side, 2), 20, RED)
    return canvas.pixels()


def _draw_bars(values: np.ndarray, shares: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """A bar for each number, from where 0 lies in its interval, and the number."""
    canvas = Canvas(WIDTH, _ROW * len(values) + 2 * _MARGIN)
    room = WIDTH - 90 - _MARGIN
    for index, value in enumerate(values):
        top = _MARGIN + index * _ROW
        canvas.box((_MARGIN, top + 3), room, _ROW - 6, MIST)
        zero, tip = (_MARGIN + room * row[index] for row in (zeros, shares))
        colour = BLUE if tip >= zero else RED
        # Of a width, so that it shows where a number is exactly 0.
        canvas.box((min(tip, zero), top + 3), abs(tip - zero) + 1, _ROW - 6, colour)
        canvas.text((WIDTH - _MARGIN, top + _ROW / 2), f"{value:.4g}", 11, anchor="rm")
    return canvas.pixels()


def _stack_members(members: dict[str, tuple[gymnasium.Space, Any]]) -> np.ndarray:
    """Pictures below each other, each under its name."""
    frames = []
    for name, (space, value) in members.items():
        frames += [_draw_title(name), observation_image(space, value)]
    return np.concatenate(frames or [_draw_title("nothing")])


def _draw_title(name: str) -> np.ndarray:
    """A line with a name in it."""
    title = Canvas(WIDTH, 22, PAPER)
    title.text((_MARGIN, 12), name, 12, INK, anchor="lm")
    return title.pixels()
