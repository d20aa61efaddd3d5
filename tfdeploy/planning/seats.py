"""Finds the roles that a launch requests, the hosts to probe, and the hosts of its tasks."""

from __future__ import annotations

from dataclasses import replace

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import Job, Mode
from tfdeploy.model.modes import rules_of
from tfdeploy.planning import checks, datasets, keep
from tfdeploy.planning.cluster.placement import Seats
from tfdeploy.planning.cluster.role_requests import (
    RoleRequests,
    role_hosts,
    role_requests,
    with_default_roles,
)
from tfdeploy.planning.options import Options


def requested_roles(inventory: Inventory, job: Job, options: Options) -> RoleRequests:
    """Return {role: the hosts, tasks and GPUs that are requested for it}.

    The facts of the hosts are not needed for this. Raises UsageError if the job has no mode, and
    ConfigError if the roles do not fit the mode.
    """
    inventory = with_default_roles(inventory, rules_of(checks.require_mode(job)))
    requested = role_requests(inventory, job, options)
    checks.check_roles(inventory, job, options, requested)
    return requested


def seats_if_gpus_free(inventory: Inventory, job: Job, facts: FactsByHost) -> Seats:
    """Return the tasks with the hosts that a launch would choose if all GPUs were free.

    The launch is assumed to have no options. Raises the same errors as a launch that cannot place
    its tasks.
    """
    datasets.refuse_split_without_workers(job)
    requested = requested_roles(inventory, job, Options())
    idle = {
        name: replace(each, gpus=tuple(replace(gpu, used_mib=0) for gpu in each.gpus))
        for name, each in facts.items()
    }
    hosts = require_probed_hosts(inventory, checks.require_mode(job), idle)
    seats, _ = keep.seat_tasks_and_find_resume_point(
        requested, hosts, idle, job, Options(ignore_keep=True)
    )
    return seats


def hosts_to_probe(inventory: Inventory, mode: Mode | None) -> tuple[str, ...]:
    """Return the hosts whose facts a plan needs, in the inventory's order.

    These are the hosts with a role that the mode uses.
    """
    inventory = with_default_roles(inventory, rules_of(mode))
    names = {name for role in rules_of(mode).usable_roles for name in role_hosts(inventory, role)}
    return tuple(host.name for host in inventory.hosts if host.name in names)


def require_probed_hosts(inventory: Inventory, mode: Mode, facts: FactsByHost) -> dict[str, Host]:
    """Return {name: host} for the hosts to probe. Raises Refused if `facts` lacks one of them."""
    asked = set(hosts_to_probe(inventory, mode))
    hosts = {host.name: host for host in inventory.hosts if host.name in asked}
    for name in hosts:
        if name not in facts:
            raise Refused(
                f"nothing is known of {name}: it was not probed",
                where=f"host {name}",
                next="launch again",
            )
    return hosts
