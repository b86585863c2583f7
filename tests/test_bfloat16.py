from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline import bfloat16
from germline.errors import InputError
from samples import sigmas

normal = st.floats(2.0**-100, 2.0**100) | st.floats(-(2.0**100), -(2.0**-100))


@given(normal)
def test_nearest_has_no_closer_neighbour(value):
    rounded = bfloat16.nearest(value)
    assert bfloat16.nearest(rounded) == rounded
    assert np.float32(rounded).view(np.uint32) & 0xFFFF == 0
    upper, lower = (
        float(np.nextafter(ml_dtypes.bfloat16(rounded), ml_dtypes.bfloat16(to)))
        for to in (np.inf, -np.inf)
    )
    distance = abs(Fraction(rounded) - Fraction(value))
    for neighbour in (upper, lower):
        other = abs(Fraction(neighbour) - Fraction(value))
        even = bfloat16.bits(rounded) % 2 == 0
        assert distance < other or (distance == other and even)


def test_rounds_once_and_not_through_float32():
    trap = 1 + 2.0**-8 + 2.0**-30
    through_float32 = float(ml_dtypes.bfloat16(np.float32(trap)))
    assert through_float32 == 1
    assert bfloat16.nearest(trap) == 1 + 2.0**-7


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.002, 0.0019989013671875), (0.02, 0.02001953125), (0.05, 0.050048828125), (-0.5, -0.5)],
)
def test_known_values(value, expected):
    assert bfloat16.scale(value, "sigma") == expected


@given(sigmas)
def test_allowed_scales_are_left_alone(sigma):
    assert bfloat16.scale(sigma, "sigma") == sigma
    assert bfloat16.bits(sigma) == int(ml_dtypes.bfloat16(sigma).view(np.uint16))


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (0.0, "small"),
        (2.0**-65, "small"),
        (-1e-30, "small"),
        (2.0**16 * 1.01, "large"),
        (1e300, "large"),
        (float("nan"), "not a number"),
        (float("-inf"), "not a number"),
    ],
)
def test_other_scales_are_refused_by_name(value, word):
    with pytest.raises(InputError, match=f"sigma: .*{word}"):
        bfloat16.scale(value, "sigma")
