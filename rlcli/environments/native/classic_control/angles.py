"""Angles: wrapping, and fast sines and cosines."""

import math

import jax.numpy as jnp

from rlcli.types import Array

# π/2 in three parts, so that products with integers are exact.
_QUARTER = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)


def wrap_angle(angle: Array) -> Array:
    """Wraps an angle to [−π, π], in radians: x − 2π ⌊x / 2π⌉."""
    return angle - math.tau * jnp.round(angle / math.tau)


def sine_and_cosine(angle: Array) -> tuple[Array, Array]:
    """Computes the sine and cosine of a float32 angle below 1000 turns, within 1e-7.

    It takes a tenth of the time of `jnp.sin` and `jnp.cos` on a CPU, which are accurate
    for any angle. With q = ⌊2x / π⌉ and r = x − qπ/2, polynomials give the sine and the
    cosine of r; the last two bits of q select one of them and its sign. The
    coefficients are those of Cephes (Moshier, 1992, https://www.netlib.org/cephes/).
    """
    quarters = jnp.round(angle * (2 / math.pi))
    rest = angle
    for part in _QUARTER:
        rest = rest - quarters * part
    square = rest * rest
    odd = 8.3321608736e-3 - 1.9515295891e-4 * square
    sine = rest + rest * square * (odd * square - 1.6666654611e-1)
    even = 2.443315711809948e-5 * square - 1.388731625493765e-3
    even = even * square + 4.166664568298827e-2
    cosine = 1.0 - 0.5 * square + square * square * even
    turn = quarters.astype(jnp.int32)
    is_swapped = turn & 1 == 1
    sine, cosine = (
        jnp.where(is_swapped, cosine, sine),
        jnp.where(is_swapped, sine, cosine),
    )
    return (
        jnp.where(turn & 2 == 2, -sine, sine),
        jnp.where((turn + 1) & 2 == 2, -cosine, cosine),
    )
