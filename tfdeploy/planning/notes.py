"""Writes the plan's notes for users: reasons for counts and ports, and possible problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Mode
from tfdeploy.model.modes import Rules, rules
from tfdeploy.model.text.folding import fold_names
from tfdeploy.planning import host_checks
from tfdeploy.planning.cluster import gpus, ports
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.cluster.role_requests import RoleRequest

_BY_DEFAULT = {
    "one": ", one per GPU, one on a host without",
    "all": ", one per host, with all its GPUs",
}


def counts(
    inventory: Inventory, mode: Mode, requested: Mapping[str, RoleRequest], seats: tuple[Seat, ...]
) -> tuple[str, ...]:
    """Return notes on each role: the number of its tasks and the reason, or that it is unused."""
    count, used = Counter(seat.role for seat in seats), rules(mode)
    texts = [f"{role}: {count[role]}{_asked(request, used)}" for role, request in requested.items()]
    idle = [
        name for name in requested["worker"].hosts if not any(seat.host == name for seat in seats)
    ]
    if idle and requested["worker"].total is None:
        texts.append(f"no worker on {', '.join(idle)}: its GPUs are given to other roles")
    unused = {role: hosts for role, hosts in inventory.roles.items() if role not in used.takes}
    busy = {seat.host for seat in seats}
    if not used.takes_slots and any(host.slots for host in inventory.hosts):
        texts.append(f"`slots` of the inventory is not used in mode {mode}")
    return (
        *texts,
        *(
            f"the role {role} of the inventory is not used in mode {mode}{_idle(set(hosts) - busy)}"
            for role, hosts in unused.items()
        ),
    )


def _idle(hosts: set[str]) -> str:
    return f": no task on {fold_names(sorted(hosts))}" if hosts else ""


def _asked(request: RoleRequest, mode: Rules) -> str:
    if request.because:
        return (
            f", on a worker host, since {request.because}"
            if request.of != request.role
            else f" by {request.because}"
        )
    if mode.single:
        return ", the first host of the role, with all its GPUs"
    if request.role == "worker" and request.slots and request.per_host is None:
        return ", one per slot"
    if request.role == "worker":
        return _BY_DEFAULT[request.share]
    return ", one per host of the role" if request.role == "ps" else ""


def of_hosts(
    layout: Layout, hosts: Mapping[str, Host], facts: Mapping[str, HostFacts], logs_bytes: int
) -> tuple[str, ...]:
    """Return notes on each host of the plan. `logs_bytes`: the largest size of one task's log."""
    texts: list[str | None] = []
    for name, host_facts in facts.items():
        seats = layout.on(name)
        texts.append(ports.why(hosts[name], host_facts, layout.mesh[name]))
        texts += gpus.notes(
            hosts[name], host_facts, tuple(index for seat in seats for index in seat.gpus)
        )
        texts += host_checks.host_notes(hosts[name], host_facts, len(seats) * logs_bytes)
    return tuple(text for text in texts if text)
