"""Chooses the ports at which a preflight tests connections between hosts, and explains failures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, Why
from tfdeploy.model.inventory import Host, HostsByName
from tfdeploy.model.output.check import LinkResult
from tfdeploy.model.plan import Plan
from tfdeploy.planning.cluster.addresses import advertised_address
from tfdeploy.planning.cluster.ports import shared_port_key
from tfdeploy.text.nexts import command_on_host, root_command_on_host

MOST_LINKS = 20_000  # limits the number of connections that one preflight tests
MOST_PORTS = 8  # limits the number of ports that are tested on one host
SAMPLE = 2  # without a plan, two ports are tested on a host: both ends of its range
SLOW = 5  # a connection is slow if it is this many times slower than the median
FAST_MBIT_S = 1000.0  # a connection that is at least this fast is never called slow
_NEAR_MS = 2.0  # a round trip of at most this many milliseconds is never called slow


class HostPorts(NamedTuple):
    """The address by which other hosts reach a host, and the ports that are tested on it."""

    address: str
    ports: tuple[int, ...]


def listening_ports(
    hosts: HostsByName, facts: FactsByHost, plan: Plan | None
) -> dict[str, HostPorts]:
    """Return {host: the address and the ports to which the other hosts try to connect}.

    A host is left out if its address is not known, or none of its ports is free.
    """
    ends_by_host: dict[str, HostPorts] = {}
    most = max(1, min(MOST_PORTS, MOST_LINKS // max(1, len(facts)) ** 2))
    planned, spent = _planned_ports(plan), dict[str, set[int]]()
    for name, seen in facts.items():
        try:
            address = advertised_address(hosts[name], seen).address
        except Refused:
            continue
        taken = spent.setdefault(shared_port_key(address), set())
        free = [port for port in sorted(seen.free_ports) if port not in taken]
        # Without a plan, the lowest and the highest free port are tested, because a firewall may
        # block only a part of the range.
        chosen = planned.get(name) or tuple(dict.fromkeys((*free[:1], *free[-1:])))
        if chosen:
            ends_by_host[name] = HostPorts(address, chosen[:most])
            taken.update(chosen)
    return ends_by_host


def _planned_ports(plan: Plan | None) -> dict[str, tuple[int, ...]]:
    """Return {host: its ports in the plan}: first the port of its agent, then the tasks' ports."""
    if plan is None:
        return {}
    return {
        host.host: (
            host.mesh_port,
            *(task.port for task in plan.tasks if task.host == host.host and task.port),
        )
        for host in plan.hosts
    }


def explain_failure(
    link: LinkResult, why: Why, detail: str, target_host: Host, address: str
) -> LinkResult:
    """Return the failed connection, with texts that explain the cause and suggest a fix.

    In the texts, names of hosts stand only after the words `--limit` and `as root on`. So the
    caller can show texts that differ only in these names as one text. `detail`: more about the
    cause; for the cause `other`, what answers instead of the host.
    """
    low, high = target_host.ports
    opened = root_command_on_host(
        target_host.name,
        target_host.user,
        f"ufw allow {low}:{high}/tcp || firewall-cmd --add-port={low}-{high}/tcp",
    )
    route = command_on_host(link.from_host, "ip", "route", "get", address)
    advertise = (
        "set `advertise:` of that host in the inventory to an address that the other hosts reach"
    )
    cause_and_fix: dict[Why, tuple[str, str]] = {
        "refused": (
            "refused, although that host listens: its firewall rejects connections, or the "
            "address belongs to another machine",
            opened,
        ),
        "silent": ("no answer: a firewall drops the packets", opened),
        "no_route": (
            "no route, or a firewall claims that there is none (firewalld does this)",
            f"{route}; else {opened}",
        ),
        "forbidden": (
            "the firewall of the connecting host forbids the connection",
            f"allow TCP to {low}-{high} in the output rules of the connecting host: "
            f"{root_command_on_host(link.from_host, None, 'nft list ruleset')}",
        ),
        "reset": (
            "the connection is closed at once: a filter between the hosts may block connections",
            opened,
        ),
        "busy": (
            f"too many connections for the kernel of the connecting host ({detail})",
            root_command_on_host(
                link.from_host, None, "sysctl -w net.ipv4.neigh.default.gc_thresh3=8192"
            ),
        ),
        "loopback": (
            f"on the connecting host, the name {address} means {detail}",
            f"remove {address} from the 127.0.x.1 lines of its /etc/hosts, or {advertise}",
        ),
        "unresolved": (f"the connecting host cannot resolve {address}: {detail}", advertise),
        "other": (
            f"{detail or 'another machine or program'} answers at {address} instead",
            advertise,
        ),
        "mute": (
            f"{address} accepts the connection, but does not answer: another machine has this "
            "address, or the host is busy",
            advertise,
        ),
        "error": (detail or "the connection fails", route),
    }
    text, fix = cause_and_fix[why]
    return replace(link, ok=False, why=text, fix=fix)


def pair_rounds(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Return every pair of hosts once, in rounds. No host occurs twice in a round.

    So all pairs of a round can be measured at the same time: no two share a host's network link.
    """
    ring: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    all_rounds = []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        all_rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return all_rounds


def mark_slow_links(links: Sequence[LinkResult]) -> tuple[LinkResult, ...]:
    """Return the connections, with a remark (`why`) on each that is much slower than the median.

    A slow connection does not count as failed.
    """
    speeds = [each.mbit_s for each in links if each.mbit_s is not None]
    waits = [each.ms for each in links if each.ms is not None]
    if len(speeds) < 3:
        return tuple(links)
    speed, wait = statistics.median(speeds), statistics.median(waits)
    return tuple(_marked_if_slow(each, speed, wait) if each.ok else each for each in links)


def _marked_if_slow(link: LinkResult, speed: float, wait: float) -> LinkResult:
    if link.mbit_s is not None and link.mbit_s * SLOW < speed and link.mbit_s < FAST_MBIT_S:
        why = f"slow: {link.mbit_s:.0f} mbit/s, most links have {speed:.0f}"
    elif link.ms is not None and link.ms > SLOW * wait and link.ms > _NEAR_MS:
        why = f"slow: a round trip takes {link.ms:.1f} ms, on most links {wait:.1f}"
    else:
        return link
    return replace(
        link,
        why=why,
        fix=f"look at cable, port and switch: {command_on_host(link.from_host, 'ip -s link')}",
    )
