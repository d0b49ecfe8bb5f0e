"""Random permutations, several times cheaper on a CPU than JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Int

from rlcli.types import Array, Key

# At most half of the 32 bits are an index. Equal random bits, of probability less than
# n · 2⁻³¹ for a pair of n items, leave the pair in its original order.
_MAX_SIZE = 2**16


def permutation(key: Key, size: int) -> Int[Array, "size"]:
    """A random order of 0, …, size − 1, each equally likely but for equal random bits.

    `jax.random.permutation` sorts the indices by random numbers, two arrays that XLA
    sorts together. This sorts one array, of numbers with random upper bits and an index
    as lower bits: a quarter of the time for 512 items, a tenth for 8 192.
    """
    if size > _MAX_SIZE:
        return jax.random.permutation(key, size)
    index = jnp.arange(size, dtype=jnp.uint32)
    low_bits = jnp.uint32((1 << (size - 1).bit_length()) - 1)
    mixed = (jax.random.bits(key, (size,)) & ~low_bits) | index
    return (jnp.sort(mixed) & low_bits).astype(jnp.int32)
