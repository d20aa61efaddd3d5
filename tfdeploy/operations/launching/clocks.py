"""Measure how far each host's clock is ahead of the run's clock.

The run's clock is the median of the clocks of the run's hosts: see agent/run/clock.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from tfdeploy.model.answers.hosts import PING
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.transport.protocols import Fleet, Outcomes, Session

READINGS = 3  # each host's clock is read this many times; the reading with the least error counts


class ClockReading(NamedTuple):
    """One reading of a host's clock.

    `ahead_s` is how far the clock is ahead of this machine's clock. `error_s` is the largest error
    that `ahead_s` can have: half the round-trip time.
    """

    ahead_s: float
    error_s: float


def compare_clocks(fleet: Fleet, plan: Plan) -> dict[str, float]:
    """Return {host: how many seconds its clock is ahead of the run's clock}.

    Hosts that do not answer are left out.
    """
    readings: Outcomes[ClockReading] = fleet.each(hosts_of(plan), read_clock)
    return seconds_ahead_of_median(split_outcomes(readings)[0])


def read_clock(session: Session, reading_count: int = READINGS) -> ClockReading:
    """Read the host's clock `reading_count` times, and return the reading with the smallest error.

    Raises the errors of an agent call.
    """
    agent = session.agent()
    readings = []
    for _ in range(reading_count):
        sent_at = time.time()
        host_clock = agent.call(PING).clock
        error_s = (time.time() - sent_at) / 2
        readings.append(ClockReading(host_clock - sent_at - error_s, abs(error_s)))
    return min(readings, key=lambda reading: reading.error_s)


def seconds_ahead_of_median(reading_by_host: Mapping[str, ClockReading]) -> dict[str, float]:
    """Return how many seconds each host's clock is ahead of the median of the hosts' clocks.

    The median is the run's clock. This machine's clock is not used, because it may be wrong. If a
    difference is smaller than the measurement error, 0.0 is returned: NTP probably keeps the two
    clocks closer together than this measurement can tell.
    """
    if not reading_by_host:
        return {}
    median = sorted(reading_by_host.values())[(len(reading_by_host) - 1) // 2]
    offsets = {
        host: (each.ahead_s - median.ahead_s, each.error_s + median.error_s)
        for host, each in reading_by_host.items()
    }
    return {
        host: round(ahead_s, 6) if abs(ahead_s) > error_s else 0.0
        for host, (ahead_s, error_s) in offsets.items()
    }
