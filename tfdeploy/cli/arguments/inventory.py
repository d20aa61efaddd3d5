"""Declare the flags of `tfdeploy inventory`."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.flags import CommonFlags


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = (
        "Print the hosts, roles and settings of the inventory, and where each is set. Contacts no "
        "host."
    )
