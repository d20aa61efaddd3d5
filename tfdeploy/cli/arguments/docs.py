"""Declare the flags of `tfdeploy docs`."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.declared import option
from tfdeploy.cli.flags import CommonFlags


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = "Print the keys of inventory and job file, and the placeholders."
    no_selection_reason = "it asks no host"

    schema: str | None = option(
        "--schema",
        metavar="SCHEMA",
        help="print the JSON Schema of a verb's --json output instead, such as status, "
        "sync-dry-run, error",
    )
