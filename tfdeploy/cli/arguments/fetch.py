"""Declare the flags of `tfdeploy fetch`."""

from __future__ import annotations

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags, bwlimit_option
from tfdeploy.cli.options import size


class Flags(OneRunFlags):
    description = (
        "Copy keep, files and logs of a run to this machine, or only those that --keep, --files "
        "and --logs select, and verify them. Repeat the command to resume an interrupted fetch or "
        "to fetch what is new."
    )

    keep: bool = switch(
        "--keep", help="fetch the folders of `keep` (checkpoints) from the host with the newest"
    )
    files: bool = switch(
        "--files", help="fetch what programs left in their working directories, outside keep"
    )
    logs: bool = switch("--logs", help="fetch the complete logs of the tasks")
    to: str | None = option("--to", metavar="DIR", help="write to DIR (default: ./fetched/RUN)")
    overwrite: bool = switch("--overwrite", help="also overwrite files that were changed here")
    max: int | None = option(
        "--max",
        metavar="SIZE",
        type=size,
        help="fetch at most SIZE from each host, such as 20GB or 500MiB",
    )
    onto: str | None = option(
        "--onto",
        metavar="HOST",
        help="with --keep: copy the newest keep to HOST, so that a launch there continues from it",
    )
    bwlimit: int | None = bwlimit_option()
