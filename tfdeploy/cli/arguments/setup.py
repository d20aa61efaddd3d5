"""Declare the flags of `tfdeploy setup`."""

from __future__ import annotations

from tfdeploy.cli.flags import CommonFlags, bwlimit_option


class Flags(CommonFlags):
    description = (
        "Make the Python environment of the job's `setup:` on every host, with uv if the host has "
        "it, else with pip. An environment is reused as long as requirements and Python are the "
        "same."
    )
    epilog = "-v shows the output of uv or pip on each host."

    bwlimit: int | None = bwlimit_option()
