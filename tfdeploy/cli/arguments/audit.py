"""What `tfdeploy audit` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import argument
from tfdeploy.cli.flags import OneRunFlags


@dataclass(frozen=True, kw_only=True)
class Flags(OneRunFlags):
    description = (
        "Who did what from where, as the hosts' audit logs say; ports, secrets, versions, what "
        "is left. Reads only."
    )
    epilog = "0: nothing is left; 1: something is left; 4: a host was not reached."

    run_prefix: str | None = argument(
        "RUN", nargs="?", help="id or unique prefix (default: all that the hosts have)"
    )
