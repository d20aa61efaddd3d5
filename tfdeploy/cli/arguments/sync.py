"""Declare the flags of `tfdeploy sync`."""

from __future__ import annotations

from tfdeploy.cli.arguments.sending import allow_secrets_switch, via_option
from tfdeploy.cli.declared import switch
from tfdeploy.cli.flags import CommonFlags, bwlimit_option
from tfdeploy.model.choices import Via


class Flags(CommonFlags):
    description = "Copy code and data to every host."

    bwlimit: int | None = bwlimit_option()
    via: Via | None = via_option()
    allow_secrets_in_code: bool = allow_secrets_switch()
    dry_run: bool = switch(
        "--dry-run", help="only show what each host would receive, and from which host"
    )
