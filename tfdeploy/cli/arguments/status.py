"""What `tfdeploy status` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import switch
from tfdeploy.cli.flags import OneRunFlags


@dataclass(frozen=True, kw_only=True)
class Flags(OneRunFlags):
    description = "The tasks of a run, as its hosts say."

    watch: bool = switch(
        "--watch", help="the dashboard on a terminal, else again and again until the run ends"
    )
