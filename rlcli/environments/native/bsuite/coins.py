"""Coins: random bits of the chain tasks."""

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.types import Array, Key
from rlcli.xla.fusion_barrier import materialize

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
