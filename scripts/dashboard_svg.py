"""Draw the dashboard as SVG from recorded events: python scripts/dashboard_svg.py EVENTS OUT.svg

EVENTS is a file that `tfdeploy launch --events FILE` wrote.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.model.events import Event, event_from_json
from tfdeploy.model.loglines import LogLine
from tfdeploy.ui.cells import Row
from tfdeploy.ui.dashboard.dashboard import Dashboard
from tfdeploy.ui.dashboard.frame import compose_frame
from tfdeploy.ui.errors import show_error
from tfdeploy.ui.screen import RenderableRows
from tfdeploy.ui.tables import cell_width

# Parts of rich's SVG to remove: fonts from the network, and the comment that names the generator.
_FOREIGN = re.compile(r"\s*@font-face \{.*?\}|\s*<!-- Generated.*?-->", re.DOTALL)


def line_of(event: Event) -> LogLine:
    """Return the line of a task's output that this event of `launch --events` records."""
    line = event.data["line"]
    try:
        text = line.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # The line has a lone Unicode surrogate. tfdeploy never writes such surrogates, so another
        # program wrote the file.
        text = line.encode("utf-8", "replace")
    stream = event.data.get("stream", "out")
    return LogLine(
        event.time, event.task or "?", event.host or "?", event.attempt or 0, stream, text
    )


def draw_picture(events: bytes, *, width: int, height: int, upto_s: float | None = None) -> str:
    """Return the SVG of the dashboard after all events, or after the events of the first `upto_s`
    seconds.

    Raises UsageError if a line is not an event.
    """
    clock = [0.0]
    dashboard = Dashboard(clock=lambda: clock[0])
    first: float | None = None
    for number, line in enumerate(events.splitlines(), 1):
        try:
            event = event_from_json(line)
        except ValueError as error:
            what = f"line {number} is no event: {error}"
            raise UsageError(what, next="the file that `launch --events FILE` wrote") from error
        first = event.time if first is None else first
        if upto_s is not None and event.time - first > upto_s:
            continue
        clock[0] = max(clock[0], event.time - first)
        if event.kind == "line":
            dashboard.take_lines([line_of(event)])
        else:
            dashboard(event)
        dashboard.apply_events()
        dashboard.ring.record_arrivals(clock[0])
    dashboard.scene.unicode = True
    return as_svg(compose_frame(dashboard.scene, width, height, (first or 0.0) + clock[0]))


def as_svg(rows: list[Row], *, title: str = "tfdeploy launch") -> str:
    """Return rows of equal width as an SVG that loads nothing from the network."""
    width = sum(cell_width(piece.text) for piece in rows[0])
    console = Console(
        file=io.StringIO(),
        record=True,
        width=width,
        height=len(rows),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(RenderableRows(rows), end="")
    return _FOREIGN.sub("", console.export_svg(title=title))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python scripts/dashboard_svg.py",
        description="the dashboard as SVG, from recorded events",
    )
    parser.add_argument("events", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=110)
    parser.add_argument("--height", type=int, default=30)
    parser.add_argument(
        "--upto",
        type=float,
        metavar="SECONDS",
        help="of the events' own time (default: all of them)",
    )
    args = parser.parse_args(arguments)
    try:
        try:
            events = args.events.read_bytes()
        except OSError as error:
            raise UsageError(
                f"cannot read events: {error.strerror}", where=str(args.events)
            ) from error
        drawn = draw_picture(events, width=args.width, height=args.height, upto_s=args.upto)
        args.out.write_text(drawn, encoding="utf-8")
    except TfdeployError as error:
        show_error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
