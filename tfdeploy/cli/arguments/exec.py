"""What `tfdeploy exec` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import option
from tfdeploy.cli.flags import CommonFlags
from tfdeploy.cli.options import duration


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    usage = "tfdeploy exec [options] -- CMD [WORD ...]"
    description = (
        "One word goes to `sh -c`, several are argv. Exit 1 when the command failed on a host."
    )
    takes_command = True

    timeout: float | None = option(
        "--timeout", type=duration, metavar="60s", help="give up on a host after so long"
    )
