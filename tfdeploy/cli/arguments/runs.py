"""What `tfdeploy runs` takes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from tfdeploy.agent.wire import RUN_STATES
from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import moment


def _read_run_states(text: str) -> list[str]:
    """`failed,lost`: states of runs. Raises ArgumentTypeError."""
    states = text.split(",")
    for name in states:
        if name not in RUN_STATES:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no state of a run: {', '.join(RUN_STATES)}"
            )
    return states


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = "Runs so far, newest first, as the hosts know them."

    all: bool = switch("--all", help="of every job, not only of this folder's")
    state: list[str] | None = option(
        "--state",
        action="extend",
        type=_read_run_states,
        metavar="STATE,...",
        help=f"only those in this state, or in one of several: {','.join(RUN_STATES)}",
    )
    since: float | None = option(  # UTC seconds
        "--since",
        type=moment,
        metavar="WHEN",
        help="only those begun since then: 2d, 1h30m (so long ago), 2026-11-22T10:00:00Z or "
        "2026-11-22",
    )
