"""Probe every host for a preflight, that is, a check of the hosts before a launch.

If a host fails, its error is its outcome, and the other hosts are still probed.
"""

from __future__ import annotations

from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Hosts
from tfdeploy.operations.launching.clocks import read_clock
from tfdeploy.operations.probe import ProbeQuestions, probe_host
from tfdeploy.planning.preflight.judge import ProbedHost
from tfdeploy.transport.protocols import Fleet, Outcomes, Session

# A clock is read again if the first reading may be wrong by more than this many seconds, or if the
# clock differs from this machine's clock by more than that.
EXACT_S = 1.0


def probe_hosts(
    fleet: Fleet, hosts: Hosts, questions: ProbeQuestions, emit: Emit
) -> Outcomes[ProbedHost]:
    """Return each host's facts and clock, or its error."""

    def read_facts(session: Session) -> ProbedHost:
        facts = probe_host(session, questions, emit)
        return ProbedHost(session.host, facts, _read_skew_s(session), session.agent().noise)

    return fleet.each(hosts, read_facts)


def _read_skew_s(session: Session) -> float:
    reading = read_clock(session, 1)
    if reading.error_s > EXACT_S or abs(reading.ahead_s) > EXACT_S:
        reading = read_clock(session)
    return reading.ahead_s
