"""Declare the flags of `tfdeploy status`."""

from __future__ import annotations

from tfdeploy.cli.declared import switch
from tfdeploy.cli.flags import OneRunFlags


class Flags(OneRunFlags):
    description = "Show the tasks of a run, as its hosts report them."

    watch: bool = switch(
        "--watch",
        help="show the dashboard; without a terminal, print the status repeatedly until the run "
        "ends",
    )
