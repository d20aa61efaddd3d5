"""Declare the flags of `tfdeploy compare`."""

from __future__ import annotations

from tfdeploy.cli.declared import argument, option, switch
from tfdeploy.cli.flags import OneRunFlags

MAX_RUNS = 10


class Flags(OneRunFlags):
    description = (
        "Show how runs differ in command, environment, lines of code, plan and versions. Also show "
        "the last value of each metric."
    )
    no_selection_reason = "a comparison always includes all hosts of a run"

    # No flag: the verb sets `run_prefix` to each of `runs` in turn.
    run_prefix: str | None = None
    runs: list[str] = argument("RUN", nargs="+", help=f"two to {MAX_RUNS} ids or unique prefixes")
    to: str | None = option(
        "--to", metavar="FILE", help="also write one HTML page, with the curves of all runs"
    )
    overwrite: bool = switch("--overwrite", help="replace an existing file")
