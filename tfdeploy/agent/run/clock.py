"""Provide the clock of a run, which shows the same time on all hosts of the run. By its times,
tfdeploy can tell which task died first. Tasks on two hosts may die within milliseconds of each
other, while the clocks of the hosts may differ by seconds.

Times in status files, and in messages between a run's hosts, are times of this clock. Journals and
logs have times of the host's own clock, which are converted when they are read.
"""

from __future__ import annotations

import time

from tfdeploy.agent import wire


def now(part: wire.HostPart) -> float:
    """Return the time of the run's clock in UTC seconds. This is the time of this host's clock,
    minus the number of seconds by which it was ahead at launch. If somebody adjusts the host's
    clock after the launch, the result is wrong by the same amount."""
    return to_run_clock(part, time.time())


def to_run_clock(part: wire.HostPart, host_time: float) -> float:
    """Convert a time of this host's clock, such as the time of a file, to a time of the run's
    clock."""
    return host_time - part.ahead_s
