"""Chains: random bits and the corridor drawing shared by the chain tasks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.types import Array, Key
from rlcli.xla.fusion_barrier import materialize

WIDTH, MARGIN = 640, 20
_BITS = 32  # bits per word
_FEW = 8  # up to this many coins, recomputing them is cheaper


def flip_coins(key: Key, number: int) -> Array:
    """Draws fair coins, bool `[number]`, from as few random words as possible."""
    words = jax.random.bits(key, (-(-number // _BITS),))
    if number > _FEW:
        # Without the barrier, XLA repeats the hash for each element of an array that
        # combines single coins with all of them: from 18 coins on, compiling takes
        # minutes.
        words = materialize(words)
    index = np.arange(number)
    shift = (index % _BITS).astype(np.uint32)
    return (words[index // _BITS] >> shift & 1).astype(jnp.bool_)


def draw_corridor(
    canvas: drawing.Canvas, top: float, length: int, position: int
) -> None:
    """Draws a corridor of `length + 1` cells from left to right, with the agent's cell.

    Cells behind the agent are darker. Long corridors have narrow cells.

    Args:
        position: the agent's cell.
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
