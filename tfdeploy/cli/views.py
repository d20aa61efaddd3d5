"""Make the views. A view shows the events of an operation to the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.project import adapt_advice
from tfdeploy.operations.emit import make_wait_warner
from tfdeploy.ui.plain import PlainView
from tfdeploy.ui.progress import SyncView

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.model.events import Emit, Event
    from tfdeploy.transport.fleet import SshFleet


def make_plain_view(flags: CommonFlags) -> PlainView:
    """Return a view that prints one line per event on stderr, and no output of tasks."""
    return PlainView(flags.err, quiet=flags.quiet, verbose=flags.verbose)


def make_transfer_view(flags: CommonFlags) -> SyncView:
    """Return a view of transfers: progress bars on a terminal, else one line per host."""
    return SyncView(flags.err, quiet=flags.quiet, verbose=flags.verbose)


@contextmanager
def open_transfer(flags: CommonFlags, bwlimit: int | None) -> Iterator[tuple[SshFleet, Emit]]:
    """Yield a fleet, and a view that shows transfers and what the fleet waits for."""
    with open_fleet(flags, bwlimit) as fleet, make_transfer_view(flags) as emit:
        fleet.on_notice = make_wait_warner(emit)
        yield fleet, emit


def make_launch_view(flags: CommonFlags) -> Emit:
    """Return a view that shows a launch with one line per event.

    On a terminal, the view shows progress bars while code and data are sent.
    """
    plain, on_terminal = make_plain_view(flags), flags.err.width is not None
    bars: list[SyncView] = []

    def emit(event: Event) -> None:
        if event.kind == "note":
            text = adapt_advice(flags, event.data["text"])
            event = replace(event, data={**event.data, "text": text})
        if event.kind == "step" and event.data.get("step") == "sync" and on_terminal:
            if event.data.get("state") == "begin":
                bars.append(make_transfer_view(flags).__enter__())
            elif bars:
                bars.pop().__exit__(None, None, None)
        (bars[-1] if bars else plain)(event)

    return emit
