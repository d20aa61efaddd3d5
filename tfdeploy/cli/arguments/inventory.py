"""Declare the flags of `tfdeploy inventory`."""

from __future__ import annotations

from tfdeploy.cli.declared import option
from tfdeploy.cli.flags import CommonFlags


class Flags(CommonFlags):
    description = (
        "Print the hosts, roles and settings of the inventory, with the file and line of each "
        "setting. Contacts no host."
    )

    output: str = option(
        "--output",
        default="table",
        choices=("table", "yaml"),
        help="yaml: print the inventory in tfdeploy's own format (default: table)",
    )
    source: str | None = option(
        "--from",
        choices=("ansible",),
        help="read the file with ansible-inventory, which supports vaults, templates and plugins",
    )
