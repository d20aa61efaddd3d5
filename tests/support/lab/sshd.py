"""Find out which settings this machine's sshd supports."""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@lru_cache(maxsize=64)
def sshd_knows(setting: str) -> bool:
    """Return True if this sshd supports a line of sshd_config.

    An older sshd refuses to start with a setting that it does not know.
    """
    command = [SSHD, "-t", "-f", "/dev/null", "-o", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "Bad configuration option" not in done.stderr


def without_penalties() -> tuple[str, ...]:
    """Return lines of sshd_config that switch off penalties for failed connections. They are for
    tests in which sshd refuses many connections on purpose.
    """
    return ("PerSourcePenalties no",) if sshd_knows("PerSourcePenalties no") else ()
