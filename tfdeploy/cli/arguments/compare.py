"""What `tfdeploy compare` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import argument, option, switch
from tfdeploy.cli.flags import OneRunFlags

MAX_RUNS = 10


@dataclass(frozen=True, kw_only=True)
class Flags(OneRunFlags):
    description = (
        "What differs in command, environment, lines of code, plan and versions, and the last "
        "value of each metric."
    )
    no_selection_reason = "runs are compared whole"

    run_prefix: str | None = None  # each of `runs` in its turn
    runs: list[str] = argument("RUN", nargs="+", help=f"ids or unique prefixes, two to {MAX_RUNS}")
    to: str | None = option(
        "--to", metavar="FILE", help="also as one HTML page, with the curves of all runs"
    )
    overwrite: bool = switch("--overwrite", help="replace an existing file")
