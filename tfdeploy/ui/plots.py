"""Draw curves with characters: small bar charts for the cells of a table, and plots with axes, made
of braille dots. The functions are pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tfdeploy.ui.amounts import format_bytes, format_duration, format_number
from tfdeploy.ui.cells import Row, Span, merge_spans

# The characters of bars, from the shortest to the longest.
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*%#"
# The bits in the code of a braille character, by row and column of its dots.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
# The width, in columns, of the labels at the left of a plot.
_LABEL = 9


TITLES = {
    "cpu": "CPU",
    "gpu": "GPU",
    "gpu memory": "GPU memory",
    "steps/s": "steps/s of the run",
    "pace": "steps/s, its own",
}
UNITS = {
    "cpu": "cores",
    "memory": "bytes",
    "gpu": "%",
    "gpu memory": "bytes",
    "steps/s": "/s",
    "pace": "/s",
}


class Curve(NamedTuple):
    """A curve of a plot. `points`: (seconds, value), in the order of time."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = ""


def draw_sparkline(values: Sequence[float], width: int, *, unicode: bool = True) -> str:
    """Return the values as a text of at most `width` bars; "" for fewer than two values. The
    shortest bar is the lowest value and the longest bar is the highest."""
    if len(values) < 2 or width < 2:
        return ""
    bars = _BARS if unicode else _ASCII_BARS
    count = min(width, len(values))
    means = []
    for bar in range(count):
        part = values[bar * len(values) // count : (bar + 1) * len(values) // count]
        means.append(math.fsum(part) / len(part))
    low, high = min(means), max(means)
    if not high > low:
        return bars[0 if high == 0 else 3] * count
    return "".join(
        bars[min(len(bars) - 1, int((value - low) / (high - low) * len(bars)))] for value in means
    )


def draw_plot(
    curves: Sequence[Curve],
    width: int,
    height: int,
    *,
    unit: str = "",
    unicode: bool = True,
) -> list[Row]:
    """Return a plot of `height` rows and at most `width` columns, with the values at the left and
    the time below.

    `unit`: the unit of the values: "", "bytes", "%", "cores", "/s". The time axis begins at the
    earliest point and ends at the latest."""
    points = [point for curve in curves for point in curve.points]
    rows, columns = height - 1, width - _LABEL - 1
    if len(points) < 2 or rows < 1 or columns < 2:
        return [[Span("no points yet" if row == 0 else "", "dim")] for row in range(max(0, height))]
    times, values = zip(*points, strict=True)
    begin, end, low, high = min(times), max(times), min(values), max(values)
    if unit in ("%", "bytes", "cores"):
        low = min(0.0, low)
    if unit == "%":
        high = max(100.0, high)
    if high <= low:
        spread = abs(low) / 2 or 1
        # A value with a unit is never negative, so the axis begins at 0 if all values are 0.
        low, high = (low - spread if low or not unit else 0.0), high + spread
    grid = _DotGrid(columns, rows, unicode)
    for curve in curves:
        dots = [
            ((time - begin) / max(end - begin, 1e-9), (value - low) / (high - low))
            for time, value in curve.points
        ]
        grid.draw(dots, curve.style)
    labels = {0: format_value(high, unit), rows - 1: format_value(low, unit)}
    if rows >= 5:
        labels[(rows - 1) // 2] = format_value((high + low) / 2, unit)
    bar = "│" if unicode else "|"
    drawn = [
        [Span(f"{labels.get(row, '')[:_LABEL]:>{_LABEL}}{bar}", "dim"), *grid.row(row)]
        for row in range(rows)
    ]
    axis = f"0 s{format_duration(end - begin).rjust(columns - 3)}"
    return [*drawn, [Span(" " * (_LABEL + 1) + axis[:columns], "dim")]]


class _DotGrid:
    """A grid of character cells, each with 2 x 4 dots (one dot without unicode). A cell has the
    style of its newest dot."""

    def __init__(self, columns: int, rows: int, unicode: bool) -> None:
        self.wide, self.high = (2, 4) if unicode else (1, 1)
        self.columns, self.rows, self.unicode = columns, rows, unicode
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]

    def draw(self, points: Sequence[tuple[float, float]], style: str) -> None:
        """Draw the points and the lines between them. `points`: (x, y), both from 0 to 1."""
        most_x, most_y = self.columns * self.wide - 1, self.rows * self.high - 1
        last: tuple[int, int] | None = None
        for x, y in points:
            dot = round(x * most_x), round((1 - y) * most_y)
            for position in _line_dots(last or dot, dot):
                self._set_dot(*position, style)
            last = dot

    def row(self, at: int) -> Row:
        return merge_spans(map(Span, map(self._cell_char, self._bits[at]), self._styles[at]))

    def _cell_char(self, bits: int) -> str:
        return " " if not bits else chr(0x2800 + bits) if self.unicode else "*"

    def _set_dot(self, x: int, y: int, style: str) -> None:
        column, line = x // self.wide, y // self.high
        self._bits[line][column] |= _DOTS[y % self.high][x % self.wide] if self.unicode else 1
        self._styles[line][column] = style


def _line_dots(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots of the line from `start` to `end`."""
    (x, y), across, down = start, end[0] - start[0], end[1] - start[1]
    # At least one step, to avoid a division by 0 if `start` and `end` are the same dot.
    steps = max(abs(across), abs(down), 1)
    return [(round(x + across * n / steps), round(y + down * n / steps)) for n in range(steps + 1)]


def format_value(value: float, unit: str) -> str:
    if unit == "cores":
        # As in the table of tasks, one whole core in use is 100%.
        return f"{100 * value:.0f}%"
    if unit == "bytes":
        return format_bytes(int(value))
    return format_number(value, 3) + (unit if unit in ("%", "/s") else "")
