"""Numeric limits of 32-bit programs. Imports no other module of rlcli.

Compiled programs compute in float32 and count in int32. A number that Python represents
exactly may be infinite, zero or negative there.
"""

import struct

INT32_MAX = 2**31 - 1
EXACT_MAX = 2**53  # integers up to this are exact in float64, and in JSON
FLOAT32_MAX = 3.4028234663852886e38
FLOAT32_TINY = 1.1754943508222875e-38  # XLA flushes smaller numbers to zero


def is_float32(value: float) -> bool:
    """Whether a number is finite in float32, and does not underflow to zero.

    False for NaN and for integers too large for a float.
    """
    # `bool`, because comparisons of NumPy's numbers return `np.bool_`.
    return bool(value == 0 or FLOAT32_TINY <= abs(value) <= FLOAT32_MAX)


def to_float32(value: float) -> float:
    """Rounds a number that `is_float32` to the nearest float32."""
    return struct.unpack("f", struct.pack("f", value))[0]
