"""Numbers over time as text: one line high, or a small chart."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, [row][column]
BRAILLE = 0x2800


def sparkline(values: Sequence[float], width: int) -> str:
    """A line of bars, the oldest value first; more values than fit are averaged."""
    shown = squeezed([value for value in values if math.isfinite(value)], width)
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    top = len(BARS) - 1
    if high <= low:
        return BARS[top // 2] * len(shown)
    return "".join(BARS[round((value - low) / (high - low) * top)] for value in shown)


def squeezed(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values, each the mean of those it stands for."""
    count = len(values)
    if count <= width:
        return list(values)
    edges = [i * count // width for i in range(width + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


Cell = tuple[str, str]


def chart(series: Mapping[str, Sequence[float]], width: int, height: int) -> list[list[Cell]]:
    """Lines of one chart, [height][width] of (which series, character).

    Where lines cross, the later series is seen.
    """
    known = [value for values in series.values() for value in values if math.isfinite(value)]
    cells = [[("", " ")] * width for _ in range(height)]
    if not known:
        return cells
    low, high = min(known), max(known)
    span = high - low or 1.0
    for name, values in series.items():
        marks = [[0] * width for _ in range(height)]
        across, up = 2 * width - 1, 4 * height - 1
        before: int | None = None
        for x in range(2 * width):
            place = x / across * (len(values) - 1)
            left = int(place)
            right = min(left + 1, len(values) - 1)
            share = place - left
            value = values[left] if share < 0.5 else values[right]
            if math.isfinite(values[left]) and math.isfinite(values[right]):
                value = values[left] + share * (values[right] - values[left])
            if not math.isfinite(value):
                before = None
                continue
            y = up - round((value - low) / span * up)
            start = y if before is None else before
            for at in range(min(start, y), max(start, y) + 1):
                marks[at // 4][x // 2] |= DOTS[at % 4][x % 2]
            before = y
        for row, line in zip(cells, marks, strict=True):
            for column, mark in enumerate(line):
                if mark:
                    row[column] = name, chr(BRAILLE + mark)
    return cells
