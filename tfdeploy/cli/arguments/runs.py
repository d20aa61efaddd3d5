"""Declare the flags of `tfdeploy runs`."""

from __future__ import annotations

import argparse

from tfdeploy.agent.wire import RUN_STATES
from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import moment


def _read_run_states(text: str) -> list[str]:
    """Return the states in a list such as `failed,lost`. Raises ArgumentTypeError."""
    states = text.split(",")
    for name in states:
        if name not in RUN_STATES:
            raise argparse.ArgumentTypeError(
                f"{name!r} is not a state of a run: {', '.join(RUN_STATES)}"
            )
    return states


class Flags(CommonFlags):
    description = "List the runs that the hosts know, newest first."

    all: bool = switch(
        "--all", help="list the runs of every job, not only of the job in this folder"
    )
    state: list[str] | None = option(
        "--state",
        action="extend",
        type=_read_run_states,
        metavar="STATE,...",
        help=f"only runs in one of these states: {','.join(RUN_STATES)} (repeatable)",
    )
    # UTC seconds
    since: float | None = option(
        "--since",
        type=moment,
        metavar="WHEN",
        help="only runs that began since WHEN: a time before now (2d, 1h30m), a moment "
        "(2026-11-22T10:00:00Z), or a date (2026-11-22)",
    )
