"""Wait for a run that `tfdeploy launch` has started, or return at once. No dashboard is shown."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfdeploy.cli.output import print_json, print_message
from tfdeploy.model.status.run_status import exit_code, run_view_json
from tfdeploy.operations.status import status
from tfdeploy.operations.watch.failure_advice import failure_advice
from tfdeploy.operations.watch.follow import follow
from tfdeploy.ui.plain import PlainView

if TYPE_CHECKING:
    from tfdeploy.cli.arguments.launch import Flags
    from tfdeploy.model.events import Emit
    from tfdeploy.model.loglines import LogLine
    from tfdeploy.model.plan import Plan
    from tfdeploy.model.status.run_status import RunView
    from tfdeploy.transport.protocols import Fleet

    TakeLines = Callable[[list[LogLine]], None]


def wait_if_requested(
    flags: Flags, fleet: Fleet, plan: Plan, emit: Emit, record_lines: TakeLines | None
) -> int:
    """Wait for the end of the run if --wait is given, and return the exit code.

    With --json, print the state of the run as JSON.
    """
    code = 0
    if flags.wait:
        view = _follow_to_end(flags, fleet, plan, emit, record_lines)
        code = exit_code(view)
        if view.state == "failed":
            advice = failure_advice(plan, view.first_death, view.cause or "")
            command = f"`tfdeploy logs --errors {plan.run}`{advice}"
            print_message(f"  next: {flags.add_file_flags(command)}")
    if flags.json:
        print_json(run_view_json(status(fleet, plan).view))
    return code


def _follow_to_end(
    flags: Flags, fleet: Fleet, plan: Plan, emit: Emit, record_lines: TakeLines | None
) -> RunView:
    """Follow the run until it ends, and return its last state.

    The lines of tasks go to `record_lines`, and also to stderr unless --quiet is given. Ctrl-C ends
    only this command, not the run.
    """
    terminal = flags.err
    shown = None if flags.quiet else PlainView(terminal, sys.stderr, color_lines=terminal.color)

    def take_lines(batch: list[LogLine]) -> None:
        if record_lines is not None:
            record_lines(batch)
        if shown is not None:
            shown.take_lines(batch)

    stop = threading.Event()
    try:
        return follow(
            fleet, plan, emit, stop=stop, take_lines=take_lines if shown or record_lines else None
        )
    except KeyboardInterrupt:
        commands = f"`tfdeploy logs -f {plan.run}`, `tfdeploy stop {plan.run}`"
        print_message(f"the run continues; to follow or stop it: {flags.add_file_flags(commands)}")
        raise
    finally:
        stop.set()
