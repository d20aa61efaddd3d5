"""Test the connections between hosts: all hosts listen, and each host connects to all others.

This test needs no run. launching/reachability.py tests the connections of a prepared run.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from tfdeploy.errors import BadAnswer
from tfdeploy.model.facts import CHECK_KNOCK, CHECK_LISTEN, CHECK_MEASURE, LinkMeasurement
from tfdeploy.model.inventory import Hosts, HostsByName, hosts_named
from tfdeploy.model.output.check import LinkResult
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.planning.preflight.links import (
    HostPorts,
    explain_failure,
    mark_slow_links,
    pair_rounds,
)
from tfdeploy.transport.protocols import Errors, Fleet, Session

LISTEN_S = 30.0  # a host that does not listen after this many seconds has failed
KNOCK_S = 120.0  # a host must try its connections to all others within this many seconds
MEASURE_S = 90.0  # timeout, in seconds, for the measurement between one pair of hosts
# Hosts listen for STAY_S seconds. With --deep, they listen STAY_PAIR_S seconds longer for each host
# that listens, because pairs of hosts are then measured.
STAY_S, STAY_PAIR_S = 180.0, 25.0


@dataclass(frozen=True)
class LinkTestResult:
    """The results of a test of all connections.

    `errors`: the errors of hosts that could not take part. `taken_ports`: {host: {a port on which
    this host could not listen: the reason}}.
    """

    links: tuple[LinkResult, ...] = ()
    errors: Errors = field(default_factory=dict)
    taken_ports: dict[str, dict[int, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Listener:
    """A host that listens on `ports` and sends `token` to each host that connects.

    The token shows which host has answered.
    """

    address: str
    ports: tuple[int, ...]
    token: str
    taken_ports: dict[int, str]


def try_links(
    fleet: Fleet, hosts: Hosts, host_ports: Mapping[str, HostPorts], *, deep: bool
) -> LinkTestResult:
    """Test the connections from each of `hosts` to each other host of `host_ports`.

    If a host cannot listen or connect, the test continues with the other hosts. `deep`: also
    measure latency and bandwidth.
    """
    listening_hosts = hosts_named(hosts, host_ports)
    if len(hosts) < 2 or not listening_hosts:
        return LinkTestResult()
    key, stay_s = (
        secrets.token_hex(16),
        STAY_S + (STAY_PAIR_S * len(listening_hosts) if deep else 0),
    )
    with ExitStack() as streams:
        listeners, errors = split_outcomes(
            fleet.each(
                listening_hosts, lambda session: _listen(session, host_ports, key, stay_s, streams)
            )
        )
        trial = _LinkTest(fleet, {host.name: host for host in hosts}, listeners, key)
        connected, connect_errors = split_outcomes(
            fleet.each(hosts, trial.connect_to_all, waits=True)
        )
        links = tuple(link for answer in connected.values() for link in answer)
        links = trial.measure_links(links) if deep else links
    taken_ports = {name: each.taken_ports for name, each in listeners.items() if each.taken_ports}
    return LinkTestResult(links, {**errors, **connect_errors}, taken_ports)


def _listen(
    session: Session,
    ports_by_host: Mapping[str, HostPorts],
    key: str,
    stay_s: float,
    streams: ExitStack,
) -> _Listener:
    """Start a listener on one host. The listener ends when `streams` is closed."""
    host, token = session.host.name, secrets.token_hex(16)
    requested = ports_by_host[host]
    args = {"ports": requested.ports, "token": token, "key": key, "seconds": stay_s}
    stream = session.agent().stream(CHECK_LISTEN, args, silence_s=LISTEN_S)
    streams.callback(stream.close)
    first_item = next((item for item, _ in stream), None)
    if first_item is None or not set(first_item.ports) <= set(requested.ports):
        raise BadAnswer("the host listens on ports that were not requested", where=host)
    ports = tuple(first_item.ports)
    taken = {
        port: first_item.taken.get(str(port), "") for port in requested.ports if port not in ports
    }
    return _Listener(requested.address, ports, token, taken)


@dataclass(frozen=True)
class _LinkTest:
    """One test of connections: the hosts that connect, and the hosts that listen."""

    fleet: Fleet
    hosts: HostsByName
    listeners: Mapping[str, _Listener]
    key: str

    def connect_to_all(self, session: Session) -> list[LinkResult]:
        """Connect from one host to all listening hosts, and return the links with their results."""
        own_name, names = session.host.name, list(self.listeners)
        own_index = names.index(own_name) if own_name in names else 0
        # Each host starts with the host after itself, so that not all connect to one host first.
        others = [
            name for name in (*names[own_index + 1 :], *names[:own_index]) if name != own_name
        ]
        links = [
            LinkResult(own_name, name, port)
            for name in others
            for port in self.listeners[name].ports
        ]
        targets = [self._listener_target(link.to_host, link.port) for link in links]
        reply = session.agent().call(CHECK_KNOCK, {"links": targets}, timeout_s=KNOCK_S)
        if reply.asked != len(links) or any(number >= len(links) for number, _, _ in reply.failed):
            raise BadAnswer("the host reports on links that were not requested", where=own_name)
        answering = {each.token: name for name, each in self.listeners.items()}
        for number, why, detail in reply.failed:
            to = links[number].to_host
            answering_host = answering.get(detail, "") if why == "other" else detail
            links[number] = explain_failure(
                links[number], why, answering_host, self.hosts[to], self.listeners[to].address
            )
        return links

    def _listener_target(self, host: str, port: int) -> tuple[str, int, str]:
        """Return the address, port and token of a listening host."""
        return self.listeners[host].address, port, self.listeners[host].token

    def measure_links(self, links: tuple[LinkResult, ...]) -> tuple[LinkResult, ...]:
        """Return the links with their latency and bandwidth.

        Pairs are measured in rounds. A host is in at most one pair of a round, so two measurements
        never share the network link of a host.
        """
        working_links = {
            (link.from_host, link.to_host): link.port for link in reversed(links) if link.ok
        }
        figures: dict[tuple[str, str], dict[str, Any]] = {}
        for round_pairs in pair_rounds(
            sorted({link.from_host for link in links} & set(self.listeners))
        ):
            targets = dict(
                pair if pair in working_links else pair[::-1]
                for pair in round_pairs
                if pair in working_links or pair[::-1] in working_links
            )

            def measure(
                session: Session, target_by_host: Mapping[str, str] = targets
            ) -> LinkMeasurement:
                host, to = session.host.name, target_by_host[session.host.name]
                args = {"link": self._listener_target(to, working_links[host, to]), "key": self.key}
                return session.agent().call(CHECK_MEASURE, args, timeout_s=MEASURE_S)

            outcomes, _ = split_outcomes(
                self.fleet.each(tuple(self.hosts[name] for name in targets), measure, waits=True)
            )
            for name, reply in outcomes.items():
                to = targets[name]
                figures[name, to] = {"ms": reply.ms, "mbit_s": reply.to_mbit_s}
                figures[to, name] = {"ms": reply.ms, "mbit_s": reply.from_mbit_s}
        return mark_slow_links(
            [
                replace(link, **figures.get((link.from_host, link.to_host), {}))
                if link.ok
                else link
                for link in links
            ]
        )
