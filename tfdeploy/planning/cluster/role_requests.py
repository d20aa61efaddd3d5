"""Derives what is requested for each role: its hosts, number of tasks and GPUs.

The request depends on the rules of the mode, the inventory, the job's `roles`, and the flags --ps
and --workers. It does not depend on what a probe finds on the hosts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdeploy.model.inventory import Inventory
from tfdeploy.model.job import Job, RoleRule
from tfdeploy.model.modes import ROLES, GpuShare, ModeRules, rules_of
from tfdeploy.planning.options import Options

SINGLE = ("chief", "evaluator")  # roles with one task, unless the job sets a count
FLAGS = {"ps": "--ps", "worker": "--workers"}


@dataclass(frozen=True)
class RoleRequest:
    """What is requested for one role.

    `total`: number of tasks. If it is None, each host gets `per_host` tasks. If `per_host` is None
    too, the default of the mode applies. `host_role`: the tasks run on the hosts that have this
    role in the inventory.
    """

    role: str
    hosts: tuple[str, ...]
    total: int | None
    per_host: int | None
    gpus: int | None
    # The setting that requests the number of tasks; "" if the number is the mode's default.
    because: str
    share: GpuShare
    host_role: str
    consecutive: bool  # whether the tasks of one host get consecutive numbers
    slots: Mapping[str, int]  # {host: the number of tasks that the inventory requests}
    place: str = "job file"  # where the job file describes the role, for messages

    @property
    def largest_count(self) -> int:
        """Return the larger one of `total` and `per_host`, or 0 if neither is requested."""
        return max(self.total or 0, self.per_host or 0)

    def gpus_per_task(self, usable_count: int, untaken_count: int) -> int:
        """Return the number of GPUs for one task of the role on a host.

        The job may set this number. Otherwise it depends on the mode. `usable_count`: number of
        usable GPUs of the host. `untaken_count`: how many of these GPUs tasks of other roles have
        not taken.
        """
        if self.role == "ps":
            return 0
        if self.gpus is not None:
            return self.gpus
        if self.share == "all":
            spread = math.ceil((self.total or 1) / max(1, len(self.hosts)))
            most_per_host = spread if self.per_host is None else self.per_host
            return max(1, untaken_count // (most_per_host or 1)) if untaken_count else 0
        return {"one": min(1, usable_count), "spare": min(1, untaken_count), "none": 0}[self.share]


RoleRequests = Mapping[str, RoleRequest]


def role_hosts(inventory: Inventory, role: str) -> tuple[str, ...]:
    """Return the hosts of a role, without the hosts that --limit or --exclude removed."""
    known_hosts = {host.name for host in inventory.hosts}
    return tuple(name for name in inventory.roles.get(role, ()) if name in known_hosts)


def with_default_roles(inventory: Inventory, mode: ModeRules) -> Inventory:
    """Return the inventory, with default roles if the inventory names no roles.

    The first host gets the roles ps and chief, if the mode needs them. The other hosts are workers.
    If there is only one host, it is a worker too.
    """
    if inventory.roles:
        return inventory
    names = tuple(host.name for host in inventory.hosts)
    first = [
        role for role in ("ps", "chief") if role in mode.required_roles or role == mode.lead_role
    ]
    workers = names[1:] or names if first else names
    return replace(inventory, roles={**dict.fromkeys(first, names[:1]), "worker": workers})


def role_requests(inventory: Inventory, job: Job, options: Options) -> RoleRequests:
    """Return {role: what is requested for it}.

    Leaves out roles that have no hosts or no requested tasks, and roles that the mode cannot use.
    """
    mode = rules_of(job.mode)
    asked = {"ps": options.ps, "worker": options.workers}
    requests = {}
    for role in (role for role in ROLES if role in mode.usable_roles):
        request = _role_request(
            inventory, role, mode, job.roles.get(role, RoleRule()), asked.get(role)
        )
        if request.hosts or request.largest_count:
            place = job.places.get(f"roles.{role}", request.place)
            requests[role] = replace(request, place=place)
    if mode.all_decide and {"chief", "worker"} <= requests.keys():
        # The chief trains as a worker does, and uses all GPUs of its host. So no worker is placed
        # on the chief's host.
        chief, worker = requests["chief"].hosts[:1], requests["worker"]
        hosts = tuple(name for name in worker.hosts if name not in chief)
        requests["worker"] = replace(worker, hosts=hosts)
    return requests


def _role_request(
    inventory: Inventory, role: str, mode: ModeRules, rule: RoleRule, flag_count: int | None
) -> RoleRequest:
    of = "worker" if role == mode.lead_role and not role_hosts(inventory, role) else role
    hosts = role_hosts(inventory, of)
    total, because = rule.count, f"`roles: {role}` of the job"
    if flag_count is not None:
        total, because = flag_count, f"{FLAGS[role]} {flag_count}"
    if total is None and rule.per_host is None:
        because = f"no host has the role {role}" if of != role else ""
        total = 1 if hosts and (role in SINGLE or mode.single) else None
    slots = {
        host.name: host.slots
        for host in inventory.hosts
        if host.slots is not None and role == "worker" and mode.takes_slots
    }
    return RoleRequest(
        role,
        hosts,
        total,
        rule.per_host,
        rule.gpus,
        because,
        mode.gpu_share(role),
        of,
        mode.ranks,
        slots,
    )
