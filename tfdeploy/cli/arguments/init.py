"""What `tfdeploy init` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import option
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.model.job import MODES

INVENTORY = "inventories/hosts.yaml"


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = f"Writes tfdeploy.yaml and {INVENTORY}, with every key explained."
    no_selection_reason = "it asks no host"

    folder: str = option(nargs="?", default=".", help="where (default: here)")
    hosts: str | None = option(
        "--hosts",
        metavar="LIST",
        help="[user@]host[:port], several with commas; the first is ps, the others workers",
    )
    mode: str | None = option(
        "--mode", choices=MODES, help="how the tasks train together (default async)"
    )
    command: str | None = option(
        "--command",
        metavar="LINE",
        help="the program's words (default: python and the program found here)",
    )
