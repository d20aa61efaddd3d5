"""By how much each host's clock is ahead of the others': the hosts of a run agree on one, see agent/runclock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.hosts import PING
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.outcomes import split
from tfdeploy.transport.protocols import Fleet, Session

LOOKS = 3  # the quickest answer is the truest


class Reading(NamedTuple):
    """Seconds before this machine's clock, and by how much that may be wrong (half of what the answer took)."""

    ahead_s: float
    error_s: float


def compare_clocks(fleet: Fleet, plan: Plan) -> dict[str, float]:
    """host -> seconds ahead of the run's clock. Who does not answer is not in it."""
    readings: dict[str, Reading | TfdeployError] = fleet.each(hosts_of(plan), read_clock)
    return ahead_of_the_middle(split(readings)[0])


def read_clock(session: Session) -> Reading:
    """Raises what a call of the agent raises."""
    agent = session.agent()
    looks = []
    for _ in range(LOOKS):
        asked = time.time()
        there = agent.call(PING).clock
        error_s = (time.time() - asked) / 2
        looks.append(Reading(there - asked - error_s, abs(error_s)))
    return min(looks, key=lambda reading: reading.error_s)


def ahead_of_the_middle(readings: Mapping[str, Reading]) -> dict[str, float]:
    """The middle one of the hosts' clocks is the run's: this machine's own may be the one that is wrong. 0.0 where a
    difference may be an error of the measurement: what keeps hosts' clocks together is better than we."""
    if not readings:
        return {}
    middle = sorted(readings.values())[(len(readings) - 1) // 2]
    found = {host: (each.ahead_s - middle.ahead_s, each.error_s + middle.error_s) for host, each in readings.items()}
    return {host: round(ahead_s, 6) if abs(ahead_s) > error_s else 0.0 for host, (ahead_s, error_s) in found.items()}
