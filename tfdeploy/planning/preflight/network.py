"""Rules about the network of one host: addresses, ports, proxies, names."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.errors import Refused
from tfdeploy.planning.cluster import addresses
from tfdeploy.planning.preflight.case import Case, Problem

LEAST_PORTS = 2  # a task, and the mesh


def address(case: Case) -> Iterator[Problem]:
    """What the other hosts call it. What several hosts must agree on is in preflight/together."""
    try:
        addresses.advertised(case.host, case.facts)
    except Refused as error:
        yield Problem("error", error.what, error.next or "")


def ports(case: Case) -> Iterator[Problem]:
    low, high = case.host.ports
    free, needed = len(case.facts.free_ports), case.needs.tasks_on(case.host.name) + 1
    if free < max(LEAST_PORTS, needed):
        owners = ", ".join(f"{port} by {owner}" for port, owner in sorted(case.facts.taken_ports.items())[:4])
        detail = f"{free} ports of {low}-{high} are free" + (f"; taken: {owners}" if owners else "")
        yield Problem("error", detail, f"end what has them there, or widen `ports:` of {case.host.name}")
    if case.preflight.ephemeral_ports:
        detail = f"{case.preflight.ephemeral_ports} ports of {low}-{high} may be given to any outgoing connection"
        yield Problem("warning", detail, f"sysctl -w net.ipv4.ip_local_reserved_ports={low}-{high} (as root there)")


def variables(case: Case) -> Iterator[Problem]:
    """Variables of the login environment that change how TensorFlow connects, or that the plan sets."""
    facts = case.facts
    if facts.proxies:
        detail = f"{', '.join(facts.proxies)} set: tasks go around the proxy to the cluster's addresses, to all others through it"
        yield Problem("warning", detail, "remove it from /etc/environment or ~/.ssh/environment there if no proxy is wanted")
    if facts.preset:
        detail = f"{', '.join(facts.preset)} set in the login environment: tasks get the plan's"
        yield Problem("warning", detail, "remove it from /etc/environment, ~/.bashrc or ~/.ssh/environment there")
