"""What `tfdeploy inventory` takes."""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.cli.flags import CommonFlags


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    description = "What the inventory says, and where. Contacts nobody."
