"""Plot the simulator's results as an SVG that fits dark and light pages.

It needs only the standard library.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Any

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 56, 64
# The lowest and the highest value of the vertical axis. A value is the time of a broadcast, as a
# multiple of the time that one link needs for all bytes.
LEAST, MOST = 1.0, 1.5
COLOURS = ("#2f81f7", "#d4491e", "#8957e5", "#2da44e")
GOALS = ((1000, 1.15), (10_000, 1.3))
STYLE = """text { font: 13px system-ui, sans-serif; fill: #57606a } \
.title { font-size: 15px; fill: #1f2328 }
.grid { stroke: #8c959f; stroke-opacity: .3 } \
.goal { stroke: #8c959f; stroke-width: 2; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } .title { fill: #f0f6fc } }"""


def plot(rows: Sequence[dict[str, Any]]) -> str:
    """Plot the time of the hosts that are not slow, by the number of hosts.

    The time is a multiple of the time that one link needs for all bytes. Cases with more than one
    site are left out, because the link between the sites limits them.
    """
    rows = [row for row in rows if not row["crossed"] and row["quick_times"] is not None]
    hosts = sorted({row["hosts"] for row in rows})
    across, up = _scale(hosts[0], hosts[-1]), _height
    drawn = [*_grid(hosts, across), *_goals(hosts, across)]
    for number, case in enumerate(dict.fromkeys(row["case"] for row in rows)):
        points = [
            (across(row["hosts"]), up(row["quick_times"])) for row in rows if row["case"] == case
        ]
        drawn += _line(points, COLOURS[number % len(COLOURS)], case, number)
    first = rows[0]
    title = (
        f"{first['bytes'] / 1e9:g} GB at {first['mbit_s']:g} Mbit/s, simulated: until the last "
        "host is complete"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
            *drawn,
            "</svg>\n",
        ]
    )


def _scale(first: int, last: int) -> Any:
    width = WIDTH - LEFT - RIGHT
    return lambda hosts: (
        LEFT + width * (log10(hosts) - log10(first)) / max(1e-9, log10(last) - log10(first))
    )


def _height(times: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (MOST - min(times, MOST)) / (MOST - LEAST)


def _grid(hosts: Sequence[int], across: Any) -> list[str]:
    drawn = []
    for step in range(round((MOST - LEAST) * 10) + 1):
        y = _height(LEAST + step / 10)
        drawn.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        drawn.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{LEAST + step / 10:.1f} '
            "x</text>"
        )
    for each in hosts:
        drawn.append(
            f'<text x="{across(each):.1f}" y="{HEIGHT - BOTTOM + 20}" '
            f'text-anchor="middle">{each:,}</text>'
        )
    return [
        *drawn,
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - BOTTOM + 42}" '
        'text-anchor="middle">hosts</text>',
    ]


def _goals(hosts: Sequence[int], across: Any) -> list[str]:
    drawn = []
    for number, times in GOALS:
        if number in hosts:
            x, y = min(across(number), WIDTH - RIGHT - 24), _height(times)
            drawn.append(
                f'<line class="goal" x1="{x - 24:.1f}" x2="{x + 24:.1f}" y1="{y:.1f}" '
                f'y2="{y:.1f}"/>'
            )
            drawn.append(f'<text x="{x:.1f}" y="{y - 6:.1f}" text-anchor="middle">goal</text>')
    return drawn


def _line(points: Sequence[tuple[float, float]], colour: str, case: str, number: int) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    x = LEFT + number * (WIDTH - LEFT - RIGHT) / len(COLOURS)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *marks,
        f'<rect x="{x:.1f}" y="36" width="14" height="4" fill="{colour}"/>',
        f'<text x="{x + 20:.1f}" y="43">{escape(case)}</text>',
    ]
