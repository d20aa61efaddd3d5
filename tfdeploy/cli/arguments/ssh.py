"""What `tfdeploy ssh` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import argument
from tfdeploy.cli.flags import CommonFlags


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    usage = "tfdeploy ssh [options] HOST [-- CMD [WORD ...]]"
    description = (
        "A shell there, or CMD: one word goes to `sh -c`, several are argv. The exit code is "
        "that of ssh."
    )
    takes_command = True

    host: str = argument("HOST", help="a host of the inventory")
