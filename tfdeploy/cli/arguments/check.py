"""What `tfdeploy check` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import switch
from tfdeploy.cli.flags import CommonFlags


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = (
        "Looks for what would go wrong in a launch, and names what mends it: each host, and each "
        "host to each other "
        "on the ports that will be used. Needs no run, and changes nothing."
    )
    epilog = (
        "Exit 0: nothing wrong (warnings may be shown), 1: something is, 4: a host was not reached."
    )

    deep: bool = switch(
        "--deep", help="also latency and bandwidth of each pair, about a second a host"
    )
