"""Make ids of runs, and check names of runs."""

from __future__ import annotations

import os
import time

from tfdeploy.errors import UsageError
from tfdeploy.text.allowed import NAME


def make_run_id(job: str, now: float) -> str:
    """Return a new id: <job>-<UTC yyyymmdd-hhmmss>-<4 hex digits>."""
    return f"{job}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{os.urandom(2).hex()}"


def check_run_name(name: str) -> str:
    """Return the name if it may be the name of a run. Raises UsageError otherwise."""
    if not NAME.match(name):
        raise UsageError(
            f"{name!r} cannot name a run",
            where="--name",
            next="at most 63 letters, digits, '.', '_' and '-'; the first is not '-'",
        )
    return name
