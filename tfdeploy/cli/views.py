"""The renderers of events that verbs use."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.model.events import Emit, Event
    from tfdeploy.model.loglines import LogLine
    from tfdeploy.model.plan import Plan
    from tfdeploy.model.status import RunView
    from tfdeploy.transport.protocols import Fleet
    from tfdeploy.ui.jsonl import EventsFile
    from tfdeploy.ui.plain import PlainView


def plain_view(flags: CommonFlags) -> PlainView:
    """Messages on stderr, one line an event; no task output."""
    from tfdeploy.ui.plain import PlainView
    from tfdeploy.ui.terminal import terminal_of

    return PlainView(terminal_of(sys.stderr, flags.color), quiet=flags.quiet, verbose=flags.verbose)


@contextmanager
def transfer_view(flags: CommonFlags) -> Iterator[Emit]:
    """Bars with rate and time left on a terminal, else one line a host."""
    from tfdeploy.ui.progress import SyncView
    from tfdeploy.ui.terminal import terminal_of

    with SyncView(terminal_of(sys.stderr, flags.color), quiet=flags.quiet, verbose=flags.verbose) as emit:
        yield emit


def launch_view(flags: CommonFlags) -> Emit:
    """One line an event; on a terminal bars instead, while code and data are sent."""
    from tfdeploy.ui.progress import SyncView
    from tfdeploy.ui.terminal import terminal_of

    plain, terminal = plain_view(flags), terminal_of(sys.stderr, flags.color)
    bars: list[SyncView] = []

    def emit(event: Event) -> None:
        if event.kind == "note":
            event = replace(event, data={**event.data, "text": flags.typed(event.data["text"])})
        if event.kind == "step" and event.data.get("step") == "sync" and terminal.width is not None:
            if event.data.get("state") == "begin":
                bars.append(SyncView(terminal, quiet=flags.quiet, verbose=flags.verbose).__enter__())
            elif bars:
                bars.pop().__exit__(None, None, None)
        (bars[-1] if bars else plain)(event)

    return emit


@contextmanager
def events_to(path: str | None) -> Iterator[EventsFile | None]:
    """The writer of --events FILE, or None."""
    if path is None:
        yield None
        return
    from tfdeploy.ui.jsonl import EventsFile

    with EventsFile(Path(path)) as events:
        yield events


def wait_plainly(
    flags: CommonFlags, fleet: Fleet, plan: Plan, emit: Emit, record_lines: Callable[[list[LogLine]], None] | None
) -> RunView:
    """Follows the run to its end; its tasks' lines go to stderr unless --quiet, and to
    `record_lines`. Ctrl-C leaves it running."""
    from tfdeploy.operations.watch.follow import follow
    from tfdeploy.ui.plain import PlainView
    from tfdeploy.ui.terminal import terminal_of

    terminal = terminal_of(sys.stderr, flags.color)
    shown = None if flags.quiet else PlainView(terminal, sys.stderr, color_lines=terminal.color)

    def take_lines(batch: list[LogLine]) -> None:
        if record_lines is not None:
            record_lines(batch)
        if shown is not None:
            shown.take_lines(batch)

    stop = threading.Event()
    try:
        return follow(fleet, plan, emit, stop=stop, take_lines=take_lines if shown or record_lines else None)
    except KeyboardInterrupt:
        look, end = flags.typed(f"tfdeploy logs -f {plan.run}"), flags.typed(f"tfdeploy stop {plan.run}")
        print(f"left; the run goes on: `{look}`, `{end}`", file=sys.stderr)
        raise
    finally:
        stop.set()


def on_terminal() -> bool:
    """True where a dashboard can be drawn and keys can be read."""
    return os.environ.get("TERM") != "dumb" and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
