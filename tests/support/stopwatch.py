"""Measure elapsed times and deadlines in tests, corrected for other load on the machine."""

from __future__ import annotations

import re
import time
from pathlib import Path

# The deadline of waits that need no shorter limit. A test that passes never waits this long. It is
# long because, on a busy machine, the import of TensorFlow alone takes a minute.
DEADLINE_S = 300.0
MOST_SLOWDOWN = 4.0
PRESSURE = Path("/proc/pressure/cpu")


class Stopwatch:
    """A clock that runs slower while any process on the machine waits for a CPU.

    A second of such waiting counts as a quarter of a second. So `seconds` equals the wall-clock
    time on an idle machine. Under load it is less, but at least a quarter of the wall-clock time.
    """

    def __init__(self) -> None:
        self._began, self._waited_s = time.monotonic(), _waited_for_cpu_s()

    @property
    def elapsed_s(self) -> float:
        """Return the wall-clock seconds since the start."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Return the seconds since the start.

        A second in which processes waited for a CPU counts only as a quarter of a second. If the
        kernel does not report such waiting, every second counts only as a quarter.
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
    """Return the total time since boot, in seconds, in which at least one process waited for a CPU.
    Return None if the kernel does not report this.
    """
    try:
        total = re.match(r"some .*total=(\d+)", PRESSURE.read_text())
    except OSError:
        return None
    return int(total[1]) / 1e6 if total else None
