"""Declare the flags of `tfdeploy check`."""

from __future__ import annotations

from tfdeploy.cli.declared import switch
from tfdeploy.cli.flags import CommonFlags


class Flags(CommonFlags):
    description = (
        "Find what would go wrong in a launch, and print how to fix it. Tests each host, and each "
        "pair of hosts on the ports that a run will use. Needs no run and changes nothing."
    )
    epilog = "Exit code: 0 with at most warnings, 1 with errors, 4 if a host was not reached."

    deep: bool = switch(
        "--deep",
        help="also measure latency and bandwidth of each pair; takes about a second per host",
    )
