"""Measure elapsed times and deadlines for tests, corrected for other load on the machine."""

from __future__ import annotations

import re
import time
from pathlib import Path

# A deadline for waits without a tighter limit; no test that passes reaches it. On a busy machine
# the import of TensorFlow alone takes a minute.
DEADLINE_S = 300.0
MOST_SLOWDOWN = 4.0
PRESSURE = Path("/proc/pressure/cpu")


class Stopwatch:
    """A clock that discounts the time in which processes waited for a CPU.

    A second of such waiting counts as a quarter of a second. So `seconds` is the wall-clock time on
    an idle machine, and at least a quarter of the wall-clock time under load.
    """

    def __init__(self) -> None:
        self._began, self._waited_s = time.monotonic(), _waited_for_cpu_s()

    @property
    def elapsed_s(self) -> float:
        """Return the wall-clock seconds."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Return the discounted seconds. If the kernel reports no CPU pressure, all time is
        discounted.
        """
        elapsed_s, waited_s = self.elapsed_s, _waited_for_cpu_s()
        if waited_s is None or self._waited_s is None:
            return elapsed_s / MOST_SLOWDOWN
        return elapsed_s - min(elapsed_s, waited_s - self._waited_s) * (1 - 1 / MOST_SLOWDOWN)

    @property
    def slowdown(self) -> float:
        """Return the factor by which load slowed the machine, between 1 and MOST_SLOWDOWN."""
        return self.elapsed_s / self.seconds


def _waited_for_cpu_s() -> float | None:
    """Return for how many seconds since boot at least one process has waited for a CPU.

    None means that the kernel does not report it.
    """
    try:
        total = re.match(r"some .*total=(\d+)", PRESSURE.read_text())
    except OSError:
        return None
    return int(total[1]) / 1e6 if total else None
