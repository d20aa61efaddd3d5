"""Declare the flags of `tfdeploy clean`."""

from __future__ import annotations

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import duration, integer_reader

CONFIRMATION_WORD = "everything"


class Flags(CommonFlags):
    description = (
        "Show what no run needs any more: ended runs, releases and environments on the hosts, and "
        "records of runs on this machine. Then ask for consent, and remove all of it."
    )
    epilog = (
        "A live run, and what it uses, is never removed. The `keep` folders are removed only with "
        "--everything. Exit code: 0 if all of it was removed, 1 if something is left, 4 if a host "
        "could not be reached."
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
    all: bool = switch(
        "--all", help="clean up after every job, not only after the job in this folder"
    )
    everything: bool = switch(
        "--everything",
        help="remove all that tfdeploy put on the hosts, even the `keep` folders; asks you to "
        f"type {CONFIRMATION_WORD}",
    )
