"""Writes the plan's notes for users: for example why a role has so many tasks."""

from __future__ import annotations

import re
from collections import Counter

from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.inventory import HostsByName, Inventory
from tfdeploy.model.job import Job, Mode
from tfdeploy.model.modes import ModeRules, rules_of
from tfdeploy.model.plan import Notes
from tfdeploy.planning import host_checks
from tfdeploy.planning.cluster import gpus, ports
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seats
from tfdeploy.planning.cluster.role_requests import RoleRequest, RoleRequests
from tfdeploy.planning.source.source import Program
from tfdeploy.text.names import fold_names
from tfdeploy.text.placeholders import NAMES

_BY_DEFAULT = {
    "one": ", one for each GPU, and one on a host without GPUs",
    "all": ", one per host, with all its GPUs",
}

_DOUBLE_BRACES = re.compile(r"\{\{(\w+)\}\}")
_SHELL_TEXT = re.compile(r"~/|\$\{?[A-Z_]+\b|.*[/:]\$\{?[A-Z_]+\b")


def count_notes(inventory: Inventory, mode: Mode, requested: RoleRequests, seats: Seats) -> Notes:
    """Return notes on each role: the number of its tasks and the reason, or that it is unused."""
    count, used = Counter(seat.role for seat in seats), rules_of(mode)
    busy = {seat.host for seat in seats}
    texts = [
        f"{role}: {count[role]}{_task_count_reason(request, used)}"
        for role, request in requested.items()
    ]
    idle = [name for name in requested["worker"].hosts if name not in busy]
    if idle and requested["worker"].total is None:
        texts.append(f"no worker runs on {', '.join(idle)}: other roles use all GPUs there")
    if not used.takes_slots and any(host.slots for host in inventory.hosts):
        texts.append(f"`slots` of the inventory is not used in mode {mode}")
    for role, hosts in inventory.roles.items():
        if role not in used.usable_roles:
            names = fold_names(sorted({*hosts} - busy))
            cure = "" if used.single else "; to use a host, add it to the role worker"
            unused = f": no task on {names}{cure}" if names else ""
            texts.append(f"the role {role} of the inventory is not used in mode {mode}{unused}")
    return tuple(texts)


def evaluator_notes(job: Job, mode: Mode, inventory: Inventory, program: Program) -> Notes:
    """Return a note if the program has code for an evaluator, and nobody has asked for one."""
    if (
        "evaluator" not in rules_of(mode).usable_roles
        or "evaluator" in {*job.roles, *inventory.roles}
        or not (
            program.has_string_constant("evaluator") or program.uses_any_name("train_and_evaluate")
        )
    ):
        return ()
    return (
        "the program has code for an evaluator, and no task has this role: to start one, name its "
        "host, and the hosts of the other roles, below `roles:` in the inventory",
    )


def literal_text_notes(job: Job) -> Notes:
    """Return notes on texts of the job that look as if they were replaced by values, but are not.

    Examples: `{{rank}}` in the command, and `$HOME` or `~` in a value of `env`.
    """
    braces = {name for word in job.command for name in _DOUBLE_BRACES.findall(word)} & {*NAMES}
    texts = [
        f"the command has {{{{{name}}}}}, so the program gets the plain text {{{name}}}; to insert "
        f"{NAMES[name]}, write {{{name}}}"
        for name in sorted(braces)
    ]
    texts += [
        f"env {name}: no shell reads this value, so the program gets {text!r} as it is"
        for name, text in job.env.items()
        if _SHELL_TEXT.match(text)
    ]
    return tuple(texts)


def _task_count_reason(request: RoleRequest, mode: ModeRules) -> str:
    """Return why a role has so many tasks, as the end of a note such as "ps: 2, one per host"."""
    if request.because:
        elsewhere = request.host_role != request.role
        return f"{', on a worker host, because' if elsewhere else ', because of'} {request.because}"
    if mode.single:
        return ", the first host of the role, with all its GPUs"
    if request.role != "worker":
        return ", one per host of the role" if request.role == "ps" else ""
    by_slots = request.slots and request.per_host is None
    return ", one per slot" if by_slots else _BY_DEFAULT[request.share]


def host_notes(layout: Layout, hosts: HostsByName, facts: FactsByHost, logs_bytes: int) -> Notes:
    """Return notes on each host of the plan. `logs_bytes`: the largest size of one task's log."""
    texts: list[str | None] = []
    for name, host_facts in facts.items():
        host, seats = hosts[name], layout.seats_on(name)
        given = tuple(index for seat in seats for index in seat.gpus)
        texts.append(ports.skipped_ports_note(host, host_facts, layout.mesh_port_by_host[name]))
        texts += gpus.notes(host, host_facts, given)
        texts += host_checks.host_notes(host, host_facts, len(seats) * logs_bytes)
    return tuple(filter(None, texts))
