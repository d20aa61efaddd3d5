"""What `tfdeploy fetch` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags, bwlimit_option
from tfdeploy.cli.options import size


@dataclass(frozen=True, kw_only=True)
class Flags(OneRunFlags):
    description = (
        "Brings keep, files and logs of a run, or only what --keep, --files and --logs name, and "
        "verifies them. "
        "The same command again goes on, or brings what is new."
    )

    keep: bool = switch(
        "--keep", help="the folders of `keep` (checkpoints), from the host with the newest"
    )
    files: bool = switch(
        "--files", help="what the programs left in their working directories, outside keep"
    )
    logs: bool = switch("--logs", help="the tasks' logs, whole")
    to: str | None = option("--to", metavar="DIR", help="where to (default: ./fetched/RUN)")
    overwrite: bool = switch("--overwrite", help="also over files that were changed here since")
    max: int | None = option(
        "--max",
        metavar="SIZE",
        type=size,
        help="take no more than this from one host, such as 20GB or 500MiB",
    )
    onto: str | None = option(
        "--onto",
        metavar="HOST",
        help="with --keep: copy the newest keep to that host, where a launch goes on from it",
    )
    bwlimit: int | None = bwlimit_option()
