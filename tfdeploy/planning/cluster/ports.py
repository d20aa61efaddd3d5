"""Assigns a free port of its host to each task, and one to each host's agent.

The inventory gives each host a range of ports, and only ports in this range are used. Hosts with
the same address (a lab on this machine, or two names for one machine) never get the same port.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, HostFacts
from tfdeploy.model.inventory import Host, HostsByName
from tfdeploy.planning.cluster.addresses import is_loopback
from tfdeploy.text.units import list_first

_SHOWN = 8  # a message lists at most this many ports


def assign_ports(
    port_count_by_host: Mapping[str, int],
    hosts: HostsByName,
    facts: FactsByHost,
    address_by_host: Mapping[str, str],
    *,
    avoid_waiting: bool = False,
) -> dict[str, tuple[int, ...]]:
    """Return {host: its ports in ascending order, as many as the host needs}.

    `avoid_waiting`: take the ports in the order in which the host lists them, which has the ports
    with connections in TIME_WAIT last. If it is False, the lowest ports are taken.

    If several hosts have the same address, the host whose range ends first chooses first. In this
    order, an assignment is found whenever one exists. Otherwise raises Refused with the host, its
    range, the taken ports and their owners.
    """
    given: dict[str, tuple[int, ...]] = {}
    spent: dict[str, dict[int, str]] = {}
    for name in sorted(
        port_count_by_host, key=lambda name: (hosts[name].ports[1], hosts[name].ports[0])
    ):
        by_others = spent.setdefault(shared_port_key(address_by_host[name]), {})
        low, high = hosts[name].ports
        free = [
            port
            for port in dict.fromkeys(facts[name].free_ports)
            if low <= port <= high and port not in by_others
        ]
        if len(free) < port_count_by_host[name]:
            raise _too_few_ports_error(
                hosts[name], facts[name], port_count_by_host[name], free, by_others
            )
        chosen = (free if avoid_waiting else sorted(free))[: port_count_by_host[name]]
        given[name] = tuple(sorted(chosen))
        by_others.update((port, name) for port in given[name])
    return {name: given[name] for name in port_count_by_host}


def shared_port_key(address: str) -> str:
    """Return a key for an address. Tasks at addresses with equal keys need different ports.

    All loopback addresses have the same key, because TensorFlow listens on all interfaces.
    """
    return "loopback" if is_loopback(address) else address


def skipped_ports_note(host: Host, facts: HostFacts, highest: int) -> str | None:
    """Return a note on the ports up to `highest` that are skipped because they are taken.

    Returns None if there are no such ports.
    """
    low, high = host.ports
    taken = _taken_ports_text(facts, low, highest)
    return (
        f"{host.name}: the run uses the first free ports of {low}-{high}; {taken}"
        if taken
        else None
    )


def _taken_ports_text(facts: HostFacts, low: int, high: int) -> str:
    owners = sorted((int(port), owner) for port, owner in facts.taken_ports.items())
    texts = [
        f"{port} by {owner}" if owner else str(port)
        for port, owner in owners
        if low <= port <= high
    ]
    return f"taken: {list_first(texts, _SHOWN)}" if texts else ""


def _too_few_ports_error(
    host: Host,
    facts: HostFacts,
    needed_count: int,
    free: list[int],
    user_by_port: Mapping[int, str],
) -> Refused:
    low, high = host.ports
    planned = [
        f"{port} by {name}" for port, name in sorted(user_by_port.items()) if low <= port <= high
    ]
    at_address = f"used at the same address: {list_first(planned, _SHOWN)}" if planned else ""
    reasons = filter(None, [_taken_ports_text(facts, low, high), at_address])
    because = "".join(f"; {reason}" for reason in reasons)
    return Refused(
        f"{host.name} needs {needed_count} ports (its tasks and one for the mesh) of its range "
        f"{low}-{high}, and {len(free)} {'is' if len(free) == 1 else 'are'} free{because}",
        where=host.source or f"host {host.name}",
        next=("free them, or " if because else "")
        + f"widen `ports:` of {host.name} in the inventory",
    )
