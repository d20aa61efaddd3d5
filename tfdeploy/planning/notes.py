"""The plan's notes: why these counts and ports, and what may surprise later. One line each, in the user's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tfdeploy.model.cluster import ROLES
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.planning import checks, gpus, ports
from tfdeploy.planning.layout import Layout
from tfdeploy.planning.placement import Seat, Wish

_BY_DEFAULT = {"ps": ", one per host of the role", "worker": ", one per GPU, one on a host without"}


def counts(inventory: Inventory, wished: Mapping[str, Wish], seats: tuple[Seat, ...]) -> tuple[str, ...]:
    """How many tasks of each role, and who asked for that many; roles that this mode leaves unused."""
    count = Counter(seat.role for seat in seats)
    said = [
        f"{role}: {count[role]}{f' by {wish.because}' if wish.because else _BY_DEFAULT.get(role, '')}"
        for role, wish in wished.items()
    ]
    idle = [name for name in wished["worker"].hosts if not any(seat.host == name for seat in seats)]
    if idle and wished["worker"].total is None:
        said.append(f"no worker on {', '.join(idle)}: its GPUs are given to other roles")
    said += [f"the role {role} of the inventory is not used in this mode" for role in inventory.roles if role not in ROLES]
    return tuple(said)


def of_hosts(layout: Layout, hosts: Mapping[str, Host], facts: Mapping[str, HostFacts], logs_bytes: int) -> tuple[str, ...]:
    """What each host of the plan gives to say. `logs_bytes`: how large one task's log may grow."""
    said: list[str | None] = []
    for name, found in facts.items():
        seats = layout.on(name)
        said.append(ports.why(hosts[name], found, layout.mesh[name]))
        said += gpus.notes(hosts[name], found, tuple(index for seat in seats for index in seat.gpus))
        said += checks.host_notes(hosts[name], found, len(seats) * logs_bytes)
    return tuple(note for note in said if note)
