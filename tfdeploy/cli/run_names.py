"""Ids of runs."""

from __future__ import annotations

import os
import time

from tfdeploy.errors import UsageError
from tfdeploy.model.inventory import NAME


def make_run_id(job: str, now: float) -> str:
    """<job>-<UTC yyyymmdd-hhmmss>-<4 hex>."""
    return f"{job}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{os.urandom(2).hex()}"


def check_run_name(name: str) -> str:
    if not NAME.match(name):
        raise UsageError(
            f"{name!r} cannot name a run",
            where="--name",
            next="letters, digits, '.', '_' and '-', at most 63, no '-' first",
        )
    return name
