"""Curves as an SVG: small panels side by side, lines with bands, and one legend for all."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from germline.errors import printable

# Colours that people who confuse some can tell apart (Okabe and Ito, 2008), without the yellow.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("", "7 3", "2 2", "9 3 2 3")  # as many as share no factor with the colours
WIDTH, HEIGHT = 420, 250  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 26, 38  # margins in it
HEAD, ROW, LETTER = 46, 17, 6.1  # the title, a row of the legend, about one letter
LONGEST = 80  # letters of a label
LETTERING = 12  # the height of a mark's label
UNITS = ((1e9, "billion "), (1e6, "million "), (1e3, "thousand "))

Place = Callable[[float, float], tuple[float, float]]


class Line(NamedTuple):
    """A step function: `y` from each `x` to the next; the band is (lower, upper), if there is one.

    Lines of one label look the same in all panels.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None = None


class Mark(NamedTuple):
    """A value to compare lines with, which has a place on their scale and no extent."""

    label: str
    y: float


class Panel(NamedTuple):
    """Lines on one scale, and marks that go all across it."""

    title: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()


class Style(NamedTuple):
    """How a line looks."""

    colour: str
    dash: str

    @property
    def stroke(self) -> str:
        """The attributes of a line."""
        dashed = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'fill="none" stroke="{self.colour}" stroke-width="1.8"{dashed}'


def draw(title: str, panels: Sequence[Panel], *, across: str, up: str) -> str:
    """All panels, and what their lines are; `across` and `up` are what is on their axes."""
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    styles = {
        label: Style(COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)])
        for i, label in enumerate(labels)
    }
    columns = 1 if len(panels) < 2 else 2 if len(panels) < 5 else 3
    width = columns * WIDTH + (WIDTH // 2 if columns == 1 else 0)
    size = width / columns, HEIGHT
    parts: list[str] = []
    for number, panel in enumerate(panels):
        x, y = number % columns * size[0], HEAD + number // columns * HEIGHT
        parts.append(f'<g transform="translate({x:g} {y:g})">')
        parts += [*_panel(panel, styles, size, across), "</g>"]
    bottom = HEAD + math.ceil(len(panels) / columns) * HEIGHT
    key, height = _legend(styles, width, bottom)
    about = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img" '
        'font-family="sans-serif" font-size="11" fill="#1f2933">',
        f"<title>{_text(title)}</title>",
        f'<rect width="{width}" height="{height:g}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{_text(title)}</text>',
        f'<text x="{LEFT}" y="36" fill="#52606d">{_text(up)}</text>',
    ]
    return "\n".join([*about, *parts, *key, "</svg>", ""])


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about `count` of them."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _panel(
    panel: Panel, styles: dict[str, Style], size: tuple[float, float], across: str
) -> list[str]:
    width, height = size
    room = max((5 + LETTER * len(_cut(mark.label)) for mark in panel.marks), default=0)
    edge = width - RIGHT - min(room, width / 3)
    lines = [_finite(line) for line in panel.lines]
    xs = [x for line in lines for x in line.x]
    ys = [y for line in lines for values in (line.y, *(line.band or ())) for y in values]
    ys += [mark.y for mark in panel.marks]
    left, right = _range(min([0.0, *xs]), max(xs, default=1.0), 0.0)
    low, high = _range(min(ys, default=0.0), max(ys, default=1.0), 0.05)

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (edge - LEFT) * (x - left) / (right - left),
            TOP + (height - TOP - BOTTOM) * (high - y) / (high - low),
        )

    parts = [f'<text x="{LEFT}" y="{TOP - 9}" font-weight="bold">{_text(panel.title)}</text>']
    for tick in ticks(low, high, 6):
        _, y = place(left, tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{edge:g}" stroke="#e4e7eb"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
        )
    unit, word = next((u for u in UNITS if right >= 2 * u[0]), (1.0, ""))
    floor = height - BOTTOM
    parts.append(f'<path d="M{LEFT} {TOP}V{floor}H{edge:g}" fill="none" stroke="#7b8794"/>')
    for tick in ticks(left, right):
        x, _ = place(tick, low)
        parts.append(f'<path d="M{x:.1f} {floor}v4" stroke="#7b8794"/>')
        label = _number(tick / unit)
        parts.append(f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{label}</text>')
    middle = (LEFT + edge) / 2
    words = _text(f"{word}{across}")
    parts.append(f'<text x="{middle:g}" y="{floor + 31}" text-anchor="middle">{words}</text>')
    parts += _marks(panel.marks, edge, place)
    parts += [band for line in lines for band in _band(line, styles[line.label], place)]
    return parts + [curve for line in lines for curve in _curve(line, styles[line.label], place)]


def _marks(marks: Sequence[Mark], edge: float, place: Place) -> list[str]:
    """A dotted line each, and beside it what it is; labels that would meet are moved apart."""
    parts: list[str] = []
    low = -math.inf
    for mark in sorted(marks, key=lambda mark: -mark.y):
        _, y = place(0.0, mark.y)
        low = max(y + 4, low + LETTERING)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{edge:g}" stroke="#52606d" stroke-dasharray="1 3"/>'
        )
        label = _text(_cut(mark.label))
        parts.append(f'<text x="{edge + 5:g}" y="{low:.1f}" fill="#52606d">{label}</text>')
    return parts


def _band(line: Line, style: Style, place: Place) -> list[str]:
    if line.band is None or len(line.x) < 2:
        return []
    lower, upper = (_steps(line.x, values) for values in line.band)
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in upper + lower[::-1]))
    return [f'<polygon points="{corners}" fill="{style.colour}" fill-opacity="0.18"/>']


def _curve(line: Line, style: Style, place: Place) -> list[str]:
    """The line, and a dot at its end: the last step has no width."""
    if not line.x:
        return []
    corners = [place(*corner) for corner in _steps(line.x, line.y)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    x, y = corners[-1]
    return [
        f'<polyline points="{points}" stroke-linejoin="round" {style.stroke}/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{style.colour}"/>',
    ]


def _steps(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """The corners of a step function."""
    corners: list[tuple[float, float]] = []
    for x, y in zip(xs, ys, strict=True):
        corners += [(x, corners[-1][1])] if corners else []
        corners.append((x, y))
    return corners


def _finite(line: Line) -> Line:
    """A line without the points that cannot be drawn."""
    rows = [line.x, line.y, *(line.band or ())]
    kept = [column for column in zip(*rows, strict=True) if all(map(math.isfinite, column))]
    x, y, *band = ([column[i] for column in kept] for i in range(len(rows)))
    return Line(line.label, x, y, (band[0], band[1]) if band else None)


def _range(low: float, high: float, margin: float) -> tuple[float, float]:
    """From where to where an axis goes; never nowhere."""
    if high <= low:
        margin, low, high = 0.0, low - abs(low) * 0.1 - 0.5, high + abs(high) * 0.1 + 0.5
    space = (high - low) * margin
    return low - space, high + space


def _legend(styles: dict[str, Style], width: int, top: int) -> tuple[list[str], float]:
    """What each line is, in as many columns as fit; and where the figure ends."""
    if not styles:
        return [], top
    texts = {name: _cut(name) for name in styles}
    room = 40 + LETTER * max(map(len, texts.values()))
    columns = max(1, min(len(styles), int((width - LEFT - RIGHT) / room)))
    parts = []
    for number, (name, style) in enumerate(styles.items()):
        x = LEFT + number % columns * room
        y = top + 14 + number // columns * ROW
        parts.append(f'<path d="M{x:g} {y - 4}h24" {style.stroke}/>')
        parts.append(f'<text x="{x + 30:g}" y="{y}">{_text(texts[name])}</text>')
    return parts, top + math.ceil(len(styles) / columns) * ROW + 10


def _number(value: float) -> str:
    """A number on an axis; what is left of a rounding is not shown."""
    text = f"{value:,.6g}"
    return "0" if float(text.replace(",", "")) == 0 else text


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _text(text: str) -> str:
    return escape(printable(text))
