"""Declare the flags of `tfdeploy audit`."""

from __future__ import annotations

from tfdeploy.cli.declared import argument
from tfdeploy.cli.flags import OneRunFlags


class Flags(OneRunFlags):
    description = (
        "Show who did what from where, as the hosts' audit logs say, and which processes, ports, "
        "secrets and versions are on the hosts. Only reads."
    )
    epilog = "Exit code: 0 if nothing is left, 1 if something is left, 4 if a host was not reached."

    run_prefix: str | None = argument(
        "RUN", nargs="?", help="id or unique prefix (default: all runs on the hosts)"
    )
