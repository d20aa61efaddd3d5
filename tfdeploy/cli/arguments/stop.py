"""Declare the flags of `tfdeploy stop`."""

from __future__ import annotations

from tfdeploy.cli.declared import argument, option, switch
from tfdeploy.cli.flags import OneRunFlags
from tfdeploy.cli.options import duration


class Flags(OneRunFlags):
    description = (
        "Stop a run: send TERM to every process of it, wait, send KILL, and check that none is "
        "left."
    )
    no_selection_reason = "a run is stopped as a whole"

    run_prefix: str | None = argument(
        "RUN", nargs="?", help="id or unique prefix (default: this job's live run)"
    )
    grace: float | None = option(
        "--grace",
        type=duration,
        metavar="20s",
        help="wait this long between TERM and KILL (default: the run's stop.grace)",
    )
    now: bool = switch("--now", help="send KILL at once")
