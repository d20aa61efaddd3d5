"""What this machine's sshd knows."""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@lru_cache(maxsize=64)
def knows(setting: str) -> bool:
    """Whether a line of sshd_config is one that this sshd understands. Older ones refuse to start
    with it."""
    command = [SSHD, "-t", "-f", "/dev/null", "-o", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "Bad configuration option" not in done.stderr


def without_penalties() -> tuple[str, ...]:
    """Lines of sshd_config for tests that are refused many times by design."""
    return ("PerSourcePenalties no",) if knows("PerSourcePenalties no") else ()
