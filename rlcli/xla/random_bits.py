"""Random bits: the same bits as JAX's, several times cheaper on a CPU.

Used where each of many environments draws with its own key.
"""

import math

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from rlcli.types import Array, Key, Traced
from rlcli.xla import backend
from rlcli.xla.fusion_barrier import fusion_barrier

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_MIN_BATCH = 128  # hashes; fewer cost less than the conditional of a fusion barrier


def unroll_key(key: Key | Traced) -> Key | Traced:
    """Returns the same key with a faster implementation: the same bits in less time.

    JAX compiles Threefry-2x32 (Salmon et al., 2011,
    https://doi.org/10.1145/2063384.2063405) for a CPU as a loop over its rounds, which
    write to memory. Here the twenty rounds are unrolled, and XLA fuses them into
    one kernel: a fifth of the time for thousands of keys under `vmap`, a tenth for a
    single key. Keys of other implementations, and keys on an accelerator, which does
    not benefit, are returned unchanged. `key` may also be raw, `uint32[2]`.
    """
    if not backend.is_cpu() or jax.random.key_impl(key) != "threefry2x32":
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_UNROLLED)


@jax.jit
def _threefry(first: Array, second: Array, counter: Array) -> tuple[Array, Array]:
    """Threefry-2x32 of a key, (first, second), and the 64-bit counter (0, counter).

    All arrays are uint32, and broadcast to a common shape.
    """
    # The constant of Skein's key schedule, truncated to 32 bits, as in the paper.
    parts = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x, y = first, second + counter
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            x = x + y
            rotated = (y << np.uint32(distance)) | (y >> np.uint32(32 - distance))
            y = rotated ^ x
        x = x + parts[(block + 1) % 3]
        y = y + parts[(block + 2) % 3] + np.uint32(block + 1)
    return x, y


@jax.jit
def _threefry_word(first: Array, second: Array, counter: Array) -> Array:
    """The XOR of the two words of `_threefry`, from which JAX derives random bits."""
    x, y = _threefry(first, second, counter)
    return x ^ y


_hash_words = fusion_barrier(_threefry, _MIN_BATCH)
_hash_bits = fusion_barrier(_threefry_word, _MIN_BATCH)


def _counters(shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    if size > 2**32:
        raise ValueError(f"expected a shape of at most 2³² numbers, got {shape}")
    return jax.lax.iota(np.uint32, size).reshape(shape)


def _seed(seed: Array) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _split(key: Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.stack(_hash_words(*key, _counters(shape)), axis=-1)


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    if bit_width == 64:
        high, low = (
            word.astype(np.uint64) for word in _hash_words(*key, _counters(shape))
        )
        return (high << np.uint64(32)) | low
    return _hash_bits(*key, _counters(shape)).astype(f"uint{bit_width}")


def _fold_in(key: Array, data: Array | int) -> jax.Array:
    return jnp.stack(_hash_words(*key, jnp.asarray(data, np.uint32)))


_UNROLLED = jax.extend.random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32_unrolled",
    tag="ufry",
)


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
