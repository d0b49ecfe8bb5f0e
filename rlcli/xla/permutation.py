"""Random permutations, several times cheaper on a CPU than JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Int

from rlcli.types import Array, Key

# The index takes at most half of the 32 bits. Two of n items have equal random bits
# with a probability below n · 2⁻³¹, and then keep their original order.
_MAX_SIZE = 2**16


def permutation(key: Key, size: int) -> Int[Array, "size"]:
    """A random permutation of 0, …, size − 1.

    All permutations are equally likely, except where two items draw equal random bits.
    `jax.random.permutation` sorts two arrays together, the indices and random numbers.
    This function sorts one array, of numbers with random upper bits and an index as
    lower bits: it takes a quarter of the time for 512 items, a tenth for 8 192.
    """
    if size > _MAX_SIZE:
        return jax.random.permutation(key, size)
    index = jnp.arange(size, dtype=jnp.uint32)
    low_bits = jnp.uint32((1 << (size - 1).bit_length()) - 1)
    mixed = (jax.random.bits(key, (size,)) & ~low_bits) | index
    return (jnp.sort(mixed) & low_bits).astype(jnp.int32)
