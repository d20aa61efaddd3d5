"""Declare the flags of `tfdeploy exec`."""

from __future__ import annotations

from tfdeploy.cli.declared import option
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import duration


class Flags(CommonFlags):
    usage = "tfdeploy exec [options] -- CMD [WORD ...]"
    description = (
        "Run a command on every host at once. A single word is a script for `sh -c`; several words "
        "are the command and its arguments. Exit 1: the command failed on a host."
    )
    takes_command = True

    timeout: float | None = option(
        "--timeout", type=duration, metavar="60s", help="give up on a host after this time"
    )
