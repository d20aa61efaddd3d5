"""Declare the flags of `tfdeploy docs`."""

from __future__ import annotations

from tfdeploy.cli.declared import argument, option
from tfdeploy.cli.flags import CommonFlags

TOPICS = ("job", "inventory", "modes", "exit-codes", "environment")


class Flags(CommonFlags):
    description = (
        "Print the keys of inventory and job file, and the placeholders; with TOPIC, one subject "
        "or one key."
    )
    no_selection_reason = "the verb contacts no host"

    topic: str | None = argument(
        "TOPIC", nargs="?", help=f"one of {', '.join(TOPICS)}, or a key, such as stall"
    )

    schema: str | None = option(
        "--schema",
        metavar="SCHEMA",
        help="print a JSON Schema instead: job-file, inventory-file, or the name of a --json "
        "output, such as status, sync-dry-run, error",
    )
