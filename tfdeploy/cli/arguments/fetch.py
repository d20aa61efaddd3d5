"""Declare the flags of `tfdeploy fetch`."""

from __future__ import annotations

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags, bwlimit_option
from tfdeploy.cli.options import size


class Flags(OneRunFlags):
    description = (
        "Copy the `keep` folders (checkpoints), the other files and the logs of a run to this "
        "machine, and verify the copies. With --keep, --files or --logs, copy only these parts. "
        "Repeat the command to resume an interrupted fetch or to fetch what is new."
    )

    keep: bool = switch(
        "--keep", help="fetch the `keep` folders from the host that has the newest checkpoint"
    )
    files: bool = switch(
        "--files",
        help="fetch the files that programs wrote to their working directories, outside `keep`",
    )
    logs: bool = switch("--logs", help="fetch the complete logs of the tasks")
    to: str | None = option("--to", metavar="DIR", help="write to DIR (default: ./fetched/RUN)")
    overwrite: bool = switch("--overwrite", help="also overwrite copies that you have changed")
    max: int | None = option(
        "--max",
        metavar="SIZE",
        type=size,
        help="fetch at most SIZE from each host, such as 20GB or 500MiB",
    )
    onto: str | None = option(
        "--onto",
        metavar="HOST",
        help="with --keep: copy the newest `keep` folders to HOST instead, so that a launch there "
        "continues from them",
    )
    bwlimit: int | None = bwlimit_option()
