"""The plan's entry for each task and host, once the layout is decided."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job
from tfdeploy.model.plan import HostPlan, TaskPlan
from tfdeploy.planning import commands, datasets, environment
from tfdeploy.planning.compat import Compat, stands
from tfdeploy.planning.flags import Flag
from tfdeploy.planning.layout import Layout
from tfdeploy.planning.placement import Seat


def task_plan(
    layout: Layout,
    seat: Seat,
    facts: HostFacts,
    job: Job,
    run: str,
    data: dict[str, str],
    added: tuple[Flag, ...],
    compat: Compat,
) -> TaskPlan:
    """Raises UsageError on a placeholder that nobody knows."""
    listens = not stands(job, compat)  # else where the program says
    values = {
        **commands.values(layout.cluster, seat.role, seat.index, job.mode, run),
        **datasets.placeholders(job, data, facts.workdir),
    }
    direct = tuple(dict.fromkeys(layout.addresses.values()))
    return TaskPlan(
        task=seat.task,
        role=seat.role,
        index=seat.index,
        host=seat.host,
        address=layout.endpoints[seat.task] if listens else "",
        port=layout.ports[seat.task] if listens else None,
        gpus=seat.gpus,
        argv=commands.argv(job, facts, values, added),
        env=environment.environment(job, seat, layout.cluster, direct, values, compat.choice),
        deciding=seat.task == layout.deciding,
        why=seat.why,
    )


def host_plan(layout: Layout, host: Host, facts: HostFacts) -> HostPlan:
    """`ssh` is the inventory's host, with defaults, as JSON gives it back: a plan equals itself after a round trip."""
    ssh: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(asdict(host)))
    return HostPlan(
        host=host.name,
        address=layout.addresses[host.name],
        mesh_port=layout.mesh[host.name],
        workdir=facts.workdir,
        python=str(facts.python),
        ssh=ssh,
    )
