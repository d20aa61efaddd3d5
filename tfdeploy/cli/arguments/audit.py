"""Declare the flags of `tfdeploy audit`."""

from __future__ import annotations

from tfdeploy.cli.declared import argument
from tfdeploy.cli.flags import OneRunFlags


class Flags(OneRunFlags):
    description = (
        "Show who did what from where, from the hosts' audit logs. Also show the processes, ports, "
        "secrets and versions on the hosts. This verb changes nothing."
    )
    epilog = (
        "Exit code: 0 if nothing is left behind, 1 if something is, 4 if a host was not reached."
    )

    run_prefix: str | None = argument(
        "RUN", nargs="?", help="id or unique prefix (default: all runs on the hosts)"
    )
