"""Declare the flags of `tfdeploy ssh`."""

from __future__ import annotations

from tfdeploy.cli.declared import argument
from tfdeploy.cli.flags import CommonFlags


class Flags(CommonFlags):
    usage = "tfdeploy ssh [options] HOST [-- CMD [WORD ...]]"
    description = (
        "Open a shell on a host, or run CMD there: a single word is a script for `sh -c`, several "
        "words are the command and its arguments. The exit code is that of ssh."
    )
    takes_command = True

    host: str = argument("HOST", help="a host of the inventory")
