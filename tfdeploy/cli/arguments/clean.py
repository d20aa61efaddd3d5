"""Declare the flags of `tfdeploy clean`."""

from __future__ import annotations

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import duration, integer_reader

CONFIRMATION_WORD = "everything"


class Flags(CommonFlags):
    description = (
        "Show the ended runs, releases, environments and records of this machine that no run "
        "needs, ask, and remove them."
    )
    epilog = (
        "Never removes a live run or what it uses, and removes `keep` only with --everything. "
        "Exit 0: all is removed, 1: something is left, 4: a host was not reached."
    )

    dry_run: bool = switch("--dry-run", help="only show what would be removed, and its size")
    newest: int | None = option(
        "--newest",
        type=integer_reader("a number of runs", maximum=10**9 - 1),
        metavar="N",
        help="keep the newest N ended runs of each job",
    )
    older: float | None = option(
        "--older",
        type=duration,
        metavar="30d",
        help="remove only runs that ended longer ago than this",
    )
    data: bool = switch("--data", help="also remove data sets that the job file does not name")
    all: bool = switch("--all", help="clean up after every job, not only this folder's")
    everything: bool = switch(
        "--everything",
        help="remove all that tfdeploy put on the hosts, keep included; asks for the word "
        f"{CONFIRMATION_WORD}",
    )
