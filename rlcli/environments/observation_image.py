"""Observation images: for environments that cannot render themselves.

An environment built with `rendering` stores the data that only images need: final
states, which `render_final` draws, and the details in a core's `RenderState`. Training
builds its environments without it, so compiled training programs do not contain it. A
state exposed in an observation excludes the details.
"""

import colorsys
import operator
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from rlcli.environments.drawing import BLUE, INK, MIST, PAPER, RED, Canvas
from rlcli.spaces import bounds, members
from rlcli.types import ArrayTree, Core, Key, RenderState, Step, missing_render, wrap

WIDTH = 320  # pixels of every image
HEIGHT = 480  # maximum in pixels, except for a Tuple or a Dict
_MARGIN = 12
_ROW = 18  # height in pixels of the row of one bar
_MAX_BARS = 24  # numbers drawn as bars; larger arrays are drawn as cells
_CELLS_ACROSS = 64  # maximum cells per row of a folded vector
_CELL = 24  # minimum side of a cell in pixels, if space allows
_CHANNELS = 1, 3, 4  # of an image: grayscale, RGB, a stack
_DARK = (17, 24, 39)


def observation_image(space: gymnasium.Space, obs: Any) -> np.ndarray:
    """Draws an observation as an image `[H, 320, 3]` uint8; H depends on the space.

    Pixels are drawn unchanged, planes and matrices as cells (a colour for each plane),
    short vectors as bars between their bounds, a Discrete as one of a row of cells, and
    the members of a Dict or a Tuple below each other, by name. uint8 `[C, H, W]` is an
    image if C can only be its channels. NaN is drawn as 0.
    """
    if isinstance(space, spaces.Tuple | spaces.Dict):
        frames = []
        for name, member in members(space).items():
            frames += [_draw_title(str(name)), observation_image(member, obs[name])]
        return np.concatenate(frames or [_draw_title("nothing")])
    if isinstance(space, spaces.Discrete):
        return _draw_choice(int(space.n), int(obs) - int(space.start))
    values = np.asarray(obs)
    if not values.size:
        return _draw_title("nothing")
    if values.dtype == np.uint8 and values.ndim == 3:
        return _draw_image(space, values)
    if values.ndim == 3:
        return _enlarge(_draw_planes(_fractions(space, values)), _CELL)
    is_matrix = values.ndim == 2 and 1 not in values.shape
    if is_matrix or values.size > _MAX_BARS:
        shares = _fractions(space, values)
        matrix = shares if is_matrix else _fold(shares.ravel())
        return _enlarge(_heat_map(matrix), _CELL)
    shares = _fractions(space, np.stack([values, np.zeros_like(values)]))
    return _draw_bars(values.ravel(), *shares.reshape((2, -1)))


def with_render(core: Core) -> Core:
    """The core with a `render`; if it has none, one that draws its observation."""
    if core.render is not missing_render:
        return core

    def reset(key: Key) -> tuple[RenderState, ArrayTree]:
        state, obs = core.reset(key)
        return RenderState(state, obs), obs

    def step(state: RenderState, action: ArrayTree, noise: ArrayTree) -> Step:
        inner_state, timestep = core.step(state.state, action, noise)
        return RenderState(inner_state, timestep.next_obs), timestep

    def render(state: RenderState) -> np.ndarray:
        obs = jax.device_get(state.details)
        if not core.agents:
            return observation_image(core.observation, obs)
        agents = range(core.agents)  # drawn one below the other
        own = [jax.tree.map(operator.itemgetter(i), obs) for i in agents]
        return np.concatenate([observation_image(core.observation, x) for x in own])

    keeps = ["goal_reward", "frame_stack", "external", "costly_reset"]
    return wrap(core, keeps=keeps, reset=reset, step=step, render=render)


def _draw_image(space: gymnasium.Space, values: np.ndarray) -> np.ndarray:
    """Draws uint8 pixels, with channels first or last."""
    first = values.shape[0] in _CHANNELS and values.shape[-1] not in _CHANNELS
    axis = 0 if first else -1
    pixels = np.moveaxis(values, axis, -1)
    if pixels.shape[-1] == 3:
        return _enlarge(pixels)
    return _enlarge(_draw_planes(np.moveaxis(_fractions(space, values), axis, -1)))


def _fractions(space: gymnasium.Space, values: np.ndarray) -> np.ndarray:
    """Scales numbers to [0, 1] by their bounds; unbounded ones by arctan."""
    low, high = (bound.astype(np.float64) for bound in bounds(space))
    values = np.where(np.isnan(values), 0, values).astype(np.float64)
    # Some spaces use the largest float as the bound of an unbounded entry.
    finite = (np.abs(low) < 1e30) & (np.abs(high) < 1e30) & (high > low)
    width = np.where(finite, high - low, 1.0)
    fractions = np.clip((values - np.where(finite, low, 0.0)) / width, 0.0, 1.0)
    return np.where(finite, fractions, 0.5 + np.arctan(values) / np.pi)


def _draw_planes(shares: np.ndarray) -> np.ndarray:
    """Draws planes `[H, W, C]` as one image: a colour for each, the last on top.

    A plane is transparent where it has its minimum.
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
    """Draws numbers `[H, W]` as a heat map: dark blue, red, yellow."""
    stops = np.array([_DARK, (59, 111, 182), (194, 65, 58), (250, 220, 110)])
    channels = [np.interp(shares, np.linspace(0, 1, 4), stops[:, i]) for i in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _fold(shares: np.ndarray) -> np.ndarray:
    """Folds a long vector into rows of cells, padded with zeros."""
    across = min(_CELLS_ACROSS, int(np.ceil(np.sqrt(shares.size))))
    rows = -(-shares.size // across)
    return np.resize(np.pad(shares, (0, rows * across - shares.size)), (rows, across))


def _enlarge(image: np.ndarray, min_size: int = 0) -> np.ndarray:
    """Scales the image without interpolation, centred in `WIDTH`, up to `HEIGHT`.

    The aspect ratio is kept, unless `min_size` is given: then cells have sides of at
    least `min_size` pixels if space allows, and each axis is subsampled independently.
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
    """Draws a discrete value as one of a row of cells, with its number."""
    canvas = Canvas(WIDTH, 64)
    canvas.text((WIDTH / 2, 18), f"{index} of {count}", 15)
    room = WIDTH - 2 * _MARGIN
    side = min(room / count, 24)
    left = (WIDTH - side * count) / 2
    canvas.box((left, 34), side * count, 20, MIST)
    canvas.box((left + side * index, 34), max(side, 2), 20, RED)
    return canvas.pixels()


def _draw_bars(values: np.ndarray, shares: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """Draws a bar for each number, from the position of 0, and the number."""
    canvas = Canvas(WIDTH, _ROW * len(values) + 2 * _MARGIN)
    room = WIDTH - 90 - _MARGIN
    for index, value in enumerate(values):
        top = _MARGIN + index * _ROW
        canvas.box((_MARGIN, top + 3), room, _ROW - 6, MIST)
        zero, tip = (_MARGIN + room * row[index] for row in (zeros, shares))
        colour = BLUE if tip >= zero else RED
        # At least one pixel wide, so that a bar of exactly 0 is visible.
        canvas.box((min(tip, zero), top + 3), abs(tip - zero) + 1, _ROW - 6, colour)
        canvas.text((WIDTH - _MARGIN, top + _ROW / 2), f"{value:.4g}", 11, anchor="rm")
    return canvas.pixels()


def _draw_title(name: str) -> np.ndarray:
    """Draws a line with a name."""
    title = Canvas(WIDTH, 22, PAPER)
    title.text((_MARGIN, 12), name, 12, INK, anchor="lm")
    return title.pixels()
