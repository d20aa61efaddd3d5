"""Makes the message (run.prepare) for each host: its tasks, and facts about the other hosts.

The list of all tasks (`peers`) and the list of all hosts (`mesh`) are the same in every message.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.agent.metric_patterns import OTHER_STEPS
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan
from tfdeploy.model.plan_files import pack_value, pack_values, shared_texts_of
from tfdeploy.text.row_values import copy_fields

# Fields of wire.HostPart that have the same name and value in the plan.
_SAME_IN_PLAN = """
    run job mode release fresh finish_grace_s stop_grace_s restart_max restart_wait_s
    same_error_ends supply_from stall_after_s stall_action
"""


def host_parts(plan: Plan, ahead_s_by_host: Mapping[str, float]) -> dict[str, wire.HostPart]:
    """Return {host: the part of the plan that the verb run.prepare sends to this host}.

    Secrets, certificates and the result of `shared_part` are added later. `ahead_s_by_host`: {host:
    how many seconds its clock is ahead of the run's clock}.
    """
    digest, texts = plan.digest, shared_texts_of(plan)
    tasks: dict[str, list[TaskPlan]] = {host.host: [] for host in plan.hosts}
    for task in plan.tasks:
        tasks[task.host].append(task)
    return {
        host.host: _host_part(
            plan, host, tasks[host.host], texts, digest, ahead_s_by_host.get(host.host, 0.0)
        )
        for host in plan.hosts
    }


def shared_part(plan: Plan) -> dict[str, Any]:
    """Return the fields of run.prepare that are equal for all hosts, as JSON values."""
    has_own = rules_of(plan.mode).ranks
    peers = [
        copy_fields(wire.Peer, task, own_port=has_own and task.port is not None)
        for task in plan.tasks
    ]
    levels = {host.host: plan.protect.level_of(host.host) for host in plan.hosts}
    guarded = [host for host, level in levels.items() if level != "none"]
    known = "firewall" in levels.values()
    mesh = [
        wire.MeshHost(
            each.host, each.address, each.mesh_port, list(each.addresses) if known else []
        )
        for each in plan.hosts
    ]
    allowed = dict.fromkeys(address for host in plan.hosts for address in host.addresses)
    return {
        "peers": wire.to_wire(peers),
        "mesh": wire.to_wire(mesh),
        "texts": list(shared_texts_of(plan)),
        "allowed": list(allowed) if guarded else [],
        "guarded": guarded,
    }


def _host_part(
    plan: Plan,
    host: HostPlan,
    tasks: list[TaskPlan],
    texts: tuple[str, ...],
    digest: str,
    ahead_s: float,
) -> wire.HostPart:
    return wire.HostPart(
        **{name: getattr(plan, name) for name in _SAME_IN_PLAN.split()},
        host=host.host,
        plan_digest=digest,
        tasks=[_task_spec(plan, host, task, texts) for task in tasks],
        keep=list(plan.keep),
        links=dict(plan.links),
        parts={
            name: [len(parts), *(n for n, part in enumerate(parts) if part.host == host.host)]
            for name, parts in plan.parts.items()
        },
        restart_backoff_s=list(plan.restart_backoff_s),
        ahead_s=ahead_s,
        lockstep=rules_of(plan.mode).lockstep,
        protect=plan.protect.level_of(host.host),
        # The job's metrics are merged in twice. The first time makes them come first in the order.
        # The second time makes them override entries of OTHER_STEPS.
        metrics={**plan.metrics, **OTHER_STEPS, **plan.metrics},
    )


def _task_spec(plan: Plan, host: HostPlan, task: TaskPlan, texts: tuple[str, ...]) -> wire.TaskSpec:
    mode_rules = rules_of(plan.mode)
    return copy_fields(
        wire.TaskSpec,
        task,
        argv=[pack_value(word, texts) for word in task.argv],
        env=pack_values(task.env, texts),
        port=None if mode_rules.ranks else task.port,
        gpus=list(task.gpus),
        ready_after_s=plan.ready_after_s,
        ready_timeout_s=plan.ready_timeout_s,
        log_max_bytes=plan.logs_max_bytes,
        path_prepend=[posixpath.dirname(host.python)],
        traits=list(mode_rules.traits),
        runtime=mode_rules.tensorflow,
        own_port=task.port if mode_rules.ranks else None,
        cwd=plan.cwd,
    )
