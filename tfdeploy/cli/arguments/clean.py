"""What `tfdeploy clean` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import duration, integer_reader

CONFIRMATION_WORD = "everything"


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = (
        "Shows ended runs, releases, environments and records of this machine that no run needs, "
        "asks, removes them."
    )
    epilog = (
        "Never a live run or what it uses, never `keep` (but with --everything). 0: done; 1: "
        "something stays; 4: a host "
        "was not reached."
    )

    dry_run: bool = switch("--dry-run", help="only show what would go, and its size")
    newest: int | None = option(
        "--newest",
        type=integer_reader("a number of runs", maximum=10**9 - 1),
        metavar="N",
        help="keep the newest N ended runs of each job",
    )
    older: float | None = option(
        "--older", type=duration, metavar="30d", help="only runs that ended longer ago"
    )
    data: bool = switch("--data", help="also data sets that the job file here does not name")
    all: bool = switch("--all", help="of every job, not only of this folder's")
    everything: bool = switch(
        "--everything",
        help=f"all that tfdeploy ever put on the hosts, keep included; asks for the word {CONFIRMATION_WORD}",
    )
