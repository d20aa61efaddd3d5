"""Provide the run's own clock, which is the same on all its hosts. The order of two deaths is a
question of milliseconds, and hosts' clocks differ by seconds.

Times in status files and between minders are times of this clock. Journals and logs are stored with
the host's clock, and converted when they are read.
"""

from __future__ import annotations

import time

from tfdeploy.agent import wire


def now(part: wire.HostPart) -> float:
    """Return the time of the run's clock: UTC seconds, corrected by the offset of this host's clock
    at launch. If the host's clock was set since then, the result is wrong by the same amount."""
    return to_run_time(part, time.time())


def to_run_time(part: wire.HostPart, host_time: float) -> float:
    """Return the run's time for a time of this host's clock, for example for the time of a file."""
    return host_time - part.ahead_s
