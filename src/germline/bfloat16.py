"""Scales that multiply the noise: bfloat16 values, the first half of the exact rule.

A bfloat16 has 8 significant bits and the noise at most 5, so their product fits float32's 24
without rounding. The bounds keep every sum normal, because XLA flushes subnormals to zero on a CPU
and numpy does not: with |σ| ≥ 2⁻⁶⁴ a product that is not 0 is at least 2⁻⁷¹ in size, and a sum can
be smaller only where two terms of like size cancel, which leaves 0 or at least 2⁻⁹⁵.
"""

import math
import struct

from germline.errors import InputError

SMALLEST = 2.0**-64
LARGEST = 2.0**16


def nearest(value: float) -> float:
    """Round to the nearest bfloat16, ties to even, in one step from a Python float.

    Going through float32 first would round twice: 1 + 2⁻⁸ + 2⁻³⁰ then becomes 1, not 1 + 2⁻⁷.
    """
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 256), exponent - 8)


def scale(value: float, name: str) -> float:
    """Round a σ or a birth scale to bfloat16 and check its size; `name` is for the error."""
    if not math.isfinite(value):
        raise InputError(f"{name}: {value} is not a number; give one from 2^-64 to 2^16 in size")
    rounded = nearest(value)
    if not SMALLEST <= abs(rounded) <= LARGEST:
        small = "small" if abs(rounded) < SMALLEST else "large"
        raise InputError(f"{name}: {value!r} is too {small}; its size must be 2^-64 to 2^16")
    return rounded


def bits(value: float) -> int:
    """Give the 16 bits of a bfloat16 value: the upper half of its float32."""
    return int.from_bytes(struct.pack(">f", value)[:2])
