"""Chains: what bsuite's tasks of one long corridor share: coins, and a picture."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.types import Array, Key
from rlcli.xla.fusion_barrier import materialize

WIDTH, MARGIN = 640, 20
_BITS = 32  # of a word
_FEW = 8  # coins that are cheaper to compute again than to keep


def flip_coins(key: Key, number: int) -> Array:
    """Fair coins, bool `[number]`: the bits of as few random words as there can be."""
    words = jax.random.bits(key, (-(-number // _BITS),))
    if number > _FEW:
        # Where single coins and all of them go into one array, XLA repeats the hash for
        # each of its elements: from 18 coins on that takes minutes to compile.
        words = materialize(words)
    index = np.arange(number)
    shift = (index % _BITS).astype(np.uint32)
    return (words[index // _BITS] >> shift & 1).astype(jnp.bool_)


def draw_corridor(
    canvas: drawing.Canvas, top: float, length: int, position: int
) -> None:
    """Cells from left to right, `length` and the one to begin in; `position` is where
    one is.

    What lies behind is darker. Long corridors have narrow cells.
    """
    position = min(position, length)
    width = (WIDTH - 2 * MARGIN) / (length + 1)
    gap = min(4.0, width / 4)
    height = min(44.0, max(width - gap, 24.0))
    for cell in range(length + 1):
        fill = (
            drawing.BLUE
            if cell == position
            else drawing.GREY
            if cell < position
            else "#e5e7eb"
        )
        left = MARGIN + cell * width + gap / 2
        canvas.box((left, top), width - gap, height, fill, radius=min(6, width / 4))
    middle = MARGIN + (position + 0.5) * width
    tip = (middle, top - 4)
    canvas.polygon([tip, (middle - 7, top - 16), (middle + 7, top - 16)], drawing.INK)
