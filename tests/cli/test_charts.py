"""Numbers as people read them, and over time as text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline.cli.output.charts import BARS, chart, sparkline, squeezed
from germline.cli.output.numbers import duration, number

NUMBERS = st.floats(-1e6, 1e6)


def test_a_sparkline_is_as_high_as_its_values():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 80) == BARS
    assert sparkline([7, 0], 80) == "█▁"
    assert sparkline([-1.0, 0.0, 1.0], 80) == "▁▅█"


def test_a_sparkline_of_one_value_is_of_middle_height():
    assert sparkline([5.0] * 3, 80) == "▄▄▄"
    assert sparkline([], 80) == ""


def test_a_sparkline_leaves_out_what_is_no_number():
    assert sparkline([math.nan, 0.0, -math.inf, 1.0, math.inf], 80) == "▁█"
    assert sparkline([math.nan], 80) == ""


def test_more_values_than_fit_are_averaged():
    assert squeezed([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    assert squeezed([1.0, 2.0, 6.0], 2) == [1.0, 4.0]
    assert squeezed([1.0, 2.0], 2) == [1.0, 2.0]


@given(st.lists(NUMBERS, max_size=300), st.integers(1, 100))
def test_a_sparkline_is_never_wider_than_its_room(values, width):
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert set(line) <= set(BARS)


@given(st.lists(NUMBERS, min_size=1, max_size=100), st.integers(1, 100))
def test_an_average_stays_between_what_it_stands_for(values, width):
    found = squeezed(values, width)
    assert min(values) - 1e-6 <= min(found)
    assert max(found) <= max(values) + 1e-6


def text(cells):
    return ["".join(character for _, character in row) for row in cells]


def test_a_chart_of_a_rising_line():
    rows = text(chart({"a": [0.0, 1.0]}, 4, 4))
    marked = [{x for x in range(4) if row[x] != " "} for row in rows]
    assert all({3 - y} <= found <= {3 - y, 4 - y} for y, found in enumerate(marked))


def test_a_chart_of_one_value_is_a_line():
    rows = text(chart({"a": [5.0]}, 6, 3))
    assert rows == [" " * 6, " " * 6, "⣀" * 6]


def test_series_share_a_scale_and_the_later_is_seen():
    cells = chart({"low": [0.0, 0.0], "high": [1.0, 1.0]}, 5, 3)
    assert [name for name, _ in cells[0]] == ["high"] * 5
    assert [name for name, _ in cells[1]] == [""] * 5
    assert [name for name, _ in cells[2]] == ["low"] * 5
    over = chart({"first": [1.0, 1.0], "then": [1.0, 1.0]}, 5, 3)
    assert {name for row in over for name, _ in row} == {"", "then"}


def test_a_chart_has_gaps_where_there_is_no_number():
    assert text(chart({"a": [math.nan, math.nan]}, 4, 2)) == ["    ", "    "]
    assert text(chart({}, 4, 2)) == ["    ", "    "]
    (row,) = text(chart({"a": [1.0, 1.0, -math.inf, 1.0, 1.0]}, 9, 1))
    assert [character != " " for character in row] == [True] * 4 + [False] + [True] * 4


@given(
    st.lists(st.floats(allow_nan=True, width=32), min_size=1, max_size=50),
    st.integers(1, 40),
    st.integers(1, 12),
)
def test_a_chart_has_the_size_that_was_asked_for(values, width, height):
    cells = chart({"a": values}, width, height)
    assert [len(row) for row in cells] == [width] * height
    assert all(c == " " or 0x2800 < ord(c) < 0x2900 for row in text(cells) for c in row)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (490.0, "490"),
        (1234567.0, "1,234,567"),
        (-21, "-21"),
        (0.12345, "0.1235"),
        (12.3456, "12.35"),
        (123.456, "123.5"),
        (12345.67, "12,345.7"),
        (-170.25, "-170.2"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_numbers_have_few_digits(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0:00"),
        (59.9, "0:59"),
        (60, "1:00"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (3661, "1:01:01"),
        (100 * 3600 + 5, "100:00:05"),
    ],
)
def test_durations_have_hours_if_there_are_any(seconds, shown):
    assert duration(seconds) == shown
