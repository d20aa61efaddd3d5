"""How long something takes on this machine, and how long to wait for it, whatever else runs here."""

from __future__ import annotations

import re
import time
from pathlib import Path

# A deadline that no passing test reaches, for what takes no other: on a busy machine importing
# TensorFlow alone takes a minute.
DEADLINE_S = 300.0
MOST_SLOWDOWN = 4.0
PRESSURE = Path("/proc/pressure/cpu")


class Stopwatch:
    """Measures how long something takes on this machine, whatever else runs on it.

    Time in which processes waited for a CPU counts a quarter. On a quiet machine that is the time of
    the wall clock; beside a load it is at least a quarter of that time.
    """

    def __init__(self) -> None:
        self._began, self._waited_s = time.monotonic(), _waited_for_cpu_s()

    @property
    def elapsed_s(self) -> float:
        """Seconds of the wall clock."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Seconds without what the load took."""
        elapsed_s, waited_s = self.elapsed_s, _waited_for_cpu_s()
        if waited_s is None or self._waited_s is None:  # a kernel that does not tell
            return elapsed_s / MOST_SLOWDOWN
        return elapsed_s - min(elapsed_s, waited_s - self._waited_s) * (1 - 1 / MOST_SLOWDOWN)

    @property
    def slowdown(self) -> float:
        """Between 1 and MOST_SLOWDOWN: how much longer things took for the load."""
        return self.elapsed_s / self.seconds


def _waited_for_cpu_s() -> float | None:
    """For how long some process has waited for a CPU, since the machine booted."""
    try:
        found = re.match(r"some .*total=(\d+)", PRESSURE.read_text())
    except OSError:
        return None
    return int(found[1]) / 1e6 if found else None
