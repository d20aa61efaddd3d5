"""The plan's notes: why these counts and ports, and what may surprise later. One line each, in the user's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Mode
from tfdeploy.model.modes import Rules, rules
from tfdeploy.planning import checks
from tfdeploy.planning.cluster import gpus, ports
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.cluster.role_requests import RoleRequest

_BY_DEFAULT = {"one": ", one per GPU, one on a host without", "all": ", one per host, with all its GPUs"}


def counts(inventory: Inventory, mode: Mode, wished: Mapping[str, RoleRequest], seats: tuple[Seat, ...]) -> tuple[str, ...]:
    """How many tasks of each role, and who asked for that many; roles that this mode leaves unused."""
    count, used = Counter(seat.role for seat in seats), rules(mode)
    said = [f"{role}: {count[role]}{_asked(wish, used)}" for role, wish in wished.items()]
    idle = [name for name in wished["worker"].hosts if not any(seat.host == name for seat in seats)]
    if idle and wished["worker"].total is None:
        said.append(f"no worker on {', '.join(idle)}: its GPUs are given to other roles")
    unused = [role for role in inventory.roles if role not in used.takes]
    return (*said, *(f"the role {role} of the inventory is not used in mode {mode}" for role in unused))


def _asked(wish: RoleRequest, mode: Rules) -> str:
    if wish.because:
        return f", on a worker host, since {wish.because}" if wish.of != wish.role else f" by {wish.because}"
    if mode.single:
        return ", the first host of the role, with all its GPUs"
    if wish.role == "worker":
        return _BY_DEFAULT[wish.share]
    return ", one per host of the role" if wish.role == "ps" else ""


def of_hosts(layout: Layout, hosts: Mapping[str, Host], facts: Mapping[str, HostFacts], logs_bytes: int) -> tuple[str, ...]:
    """What each host of the plan gives to say. `logs_bytes`: how large one task's log may grow."""
    said: list[str | None] = []
    for name, found in facts.items():
        seats = layout.on(name)
        said.append(ports.why(hosts[name], found, layout.mesh[name]))
        said += gpus.notes(hosts[name], found, tuple(index for seat in seats for index in seat.gpus))
        said += checks.host_notes(hosts[name], found, len(seats) * logs_bytes)
    return tuple(note for note in said if note)
