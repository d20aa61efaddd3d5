"""Draw charts as SVG text: curves over time, and the attempts of tasks as bars. The functions are
pure.

No plotting library is used, because none draws a report of 256 tasks in less than a megabyte. This
module is short and needs no further package. Colours are classes of the page's style sheet, c0 to
c7, so that the same chart works in light and dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from tfdeploy.model.report.run_report import Attempt, Chart, ChartLine
from tfdeploy.text.row_values import outcome_words
from tfdeploy.text.units import format_bytes
from tfdeploy.ui.amounts import format_duration, format_number
from tfdeploy.ui.sanitise import clean

# The width of a chart. This size and all sizes below are in units of the chart's viewBox.
WIDTH = 720
HEIGHT = 240
# The width of the timeline.
WIDE = 1130
# The margins of a chart.
LEFT = 64
RIGHT = 12
TOP = 10
BOTTOM = 24
# The maximum number of points in one piece of a curve. (A curve with gaps has several pieces.)
MOST_POINTS = 400
# The maximum number of curves in one chart.
MOST_LINES = 256
# The maximum number of tasks in the timeline.
MOST_ROWS = 256
# The number of colours for curves in the style sheet.
COLOURS = 8
# Values are limited to this magnitude, so that the arithmetic cannot overflow.
_MOST = 1e100
# The height of a row of the timeline.
_ROW = 18
# {outcome of an attempt: CSS class of its bar}. An attempt without an outcome still runs.
_KINDS = {"succeeded": "good", "stopped": "still", None: "going"}
FormatValue = Callable[[float], str]


def draw_chart(curves: Chart, run_s: float) -> str:
    """Return a chart of the curves with axes and a legend; "" if there are no points. `run_s`: the
    duration of the run, in seconds.

    If there are more curves than COLOURS, all curves have the same colour, and the legend does not
    name them. The browser shows the name of the curve that is under the pointer."""
    lines = curves.lines[:MOST_LINES]
    points = [
        (time, _clamp(value)) for line in lines for piece in line.pieces for time, value in piece
    ]
    if not points:
        return ""
    latest = max(max(time for time, _ in points), run_s, 1.0)
    values = [value for _, value in points]
    low, high = _axis_range(min(values), max(values), from_zero=curves.unit != "")
    amount = _formatter_of(curves.unit)

    def across(time: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * max(0.0, time) / latest

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    parts = [*_draw_axes(low, high, latest, across, up, amount)]
    for number, line in enumerate(lines):
        colour = f"c{number}" if len(lines) <= COLOURS else "many"
        title = f"{clean(line.name, 80)}: {amount(line.last or 0.0)} at the end"
        parts.append(f'<g class="line {colour}"><title>{escape(title)}</title>')
        for piece in line.pieces:
            dots = [
                (f"{across(time):.1f}", f"{up(_clamp(value)):.1f}")
                for time, value in thin_out(piece)
            ]
            if len(dots) > 1:
                parts.append(f'<polyline points="{" ".join(map(",".join, dots))}"/>')
            else:
                parts.append(f'<circle r="2" cx="{dots[0][0]}" cy="{dots[0][1]}"/>')
        parts.append("</g>")
    label = escape(f"{clean(curves.name, 80)} over time")
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )
    return svg + draw_legend(lines, amount)


def draw_legend(lines: Sequence[ChartLine], amount: FormatValue) -> str:
    if len(lines) > COLOURS:
        return f'<p class="legend">{len(lines)} curves; point at a curve to see its name</p>'
    names = (
        f'<span class="key c{number}">{escape(clean(line.name, 80))} '
        f"<b>{escape(amount(line.last or 0.0))}</b></span>"
        for number, line in enumerate(lines)
    )
    return f'<p class="legend">{" ".join(names)}</p>'


def draw_timeline(attempts: Sequence[Attempt], began: float, until: float) -> str:
    """Return the timeline: a row for each task, with a bar for each attempt; "" if there are no
    attempts. `began`, `until`: both ends of the time axis, in UTC seconds."""
    tasks = list(dict.fromkeys(each.task for each in attempts))[:MOST_ROWS]
    if not tasks:
        return ""
    top = {task: TOP + _ROW * number for number, task in enumerate(tasks)}
    height = _ROW * len(tasks) + BOTTOM + TOP
    left_margin = LEFT + 40
    length = max(until - began, 1.0)

    def across(time: float) -> float:
        return left_margin + (WIDE - left_margin - RIGHT) * min(
            1.0, max(0.0, (time - began) / length)
        )

    parts = []
    for tick in ticks(0.0, length, 6):
        x = across(began + tick)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{_tick_label(tick)}</text>'
        )
    for task, at_y in top.items():
        parts.append(
            f'<text x="{left_margin - 8}" y="{at_y + 12}" '
            f'text-anchor="end">{escape(clean(task, 24))}</text>'
        )
    shown = [each for each in attempts if each.task in top]
    parts += [_attempt_bar(each, top[each.task], across, until) for each in shown]
    if len(shown) < len(attempts):
        parts.append(f'<text x="{left_margin}" y="{height - 8}">further tasks are not shown</text>')
    return (
        f'<svg viewBox="0 0 {WIDE} {height}" role="img" aria-label="attempts over '
        f'time">{"".join(parts)}</svg>'
    )


def _attempt_bar(attempt: Attempt, top: int, across: Callable[[float], float], until: float) -> str:
    end = until if attempt.ended is None else attempt.ended
    outcome = (
        clean(outcome_words(attempt.outcome, attempt.exit_code, attempt.signal), 40)
        if attempt.outcome
        else "running"
    )
    title = (
        f"{clean(attempt.task, 24)}, attempt {attempt.number}: {outcome} after "
        f"{format_duration(end - attempt.started)}"
    )
    title += f": {clean(attempt.reason, 300)}" if attempt.reason else ""
    width = max(2.0, across(end) - across(attempt.started))
    kind = _KINDS.get(attempt.outcome, "bad")
    shape = (
        f'x="{across(attempt.started):.1f}" y="{top + 2}" width="{width:.1f}" height="{_ROW - 5}"'
    )
    return f'<g class="bar {kind}"><title>{escape(title)}</title><rect {shape} rx="2"/></g>'


def thin_out(piece: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield at most MOST_POINTS points of a piece of a curve. The piece is divided into sections.
    The lowest and the highest point of each section are kept, so that no peak is lost."""
    if len(piece) <= MOST_POINTS:
        yield from piece
        return
    stretch = math.ceil(2 * len(piece) / MOST_POINTS)
    for begin in range(0, len(piece), stretch):
        part = piece[begin : begin + stretch]
        ends = {
            min(range(len(part)), key=lambda i: part[i][1]),
            max(range(len(part)), key=lambda i: part[i][1]),
        }
        yield from (part[i] for i in sorted(ends))


def ticks(low: float, high: float, max_count: int) -> list[float]:
    """Return round numbers from `low` to `high`, at most `max_count` + 1 of them. Return no numbers
    if `low` and `high` are nearly equal."""
    raw = (high - low) / max(1, max_count)
    if raw <= 1e-12 * max(abs(low), abs(high)):
        return []
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _axis_range(low: float, high: float, *, from_zero: bool) -> tuple[float, float]:
    low = min(0.0, low) if from_zero else low
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        around = max(1e-9, abs(low) / 2)
        return (low, low + 1.0) if from_zero and not low else (low - around, high + around)
    return low, high + 0.03 * (high - low)


def _draw_axes(
    low: float,
    high: float,
    latest: float,
    across: Callable[[float], float],
    up: Callable[[float], float],
    amount: FormatValue,
) -> Iterator[str]:
    for value in ticks(low, high, 4):
        y = up(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield (
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(amount(value))}</text>'
        )
    for value in ticks(0.0, latest, 6):
        yield (
            f'<text x="{across(value):.1f}" y="{HEIGHT - 6}" '
            f'text-anchor="middle">{_tick_label(value)}</text>'
        )


def _clamp(value: float) -> float:
    return max(-_MOST, min(_MOST, value))


def _tick_label(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 0.05 else "0"


def _formatter_of(unit: str) -> FormatValue:
    if unit in ("bytes", "bytes/s"):
        return lambda value: format_bytes(value) + unit[5:]
    return lambda value: f"{value:.0f}%" if unit == "%" else format_number(value)
