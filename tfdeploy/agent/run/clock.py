"""Provide the run's own clock. Which of two tasks died first is a question of milliseconds, and
hosts' clocks differ by seconds.

Every time in the files of a run and between minders is of this clock. Logs are stored by the host's
clock and sent by the run's.
"""

from __future__ import annotations

import time

from tfdeploy.agent import wire


def now(part: wire.HostPart) -> float:
    """Return UTC seconds, corrected by the offset of this host's clock at launch. If the clock was
    set since then, the result is off by that."""
    return to_run_time(part, time.time())


def to_run_time(part: wire.HostPart, host_time: float) -> float:
    """Return the run's time for a time of this host's clock, for example of a file."""
    return host_time - part.ahead_s
