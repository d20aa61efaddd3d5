"""Makes the plan's entry for each task and each host, once addresses and ports are decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, ssh_settings_of
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import HostPlan, TaskPlan
from tfdeploy.planning import datasets, environment
from tfdeploy.planning.cluster import addresses, restarts
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.cluster.placement import Seat
from tfdeploy.planning.program import command_line, servers
from tfdeploy.planning.program.flagged_program import FlaggedProgram, OwnValues
from tfdeploy.planning.program.servers import ServerRoles
from tfdeploy.planning.program.task_identity import TaskIdentity
from tfdeploy.text.row_values import copy_fields


@dataclass(frozen=True)
class SharedByTasks:
    """Values that all tasks of the run have in common.

    `programs`: {role: its program}; roles whose tasks run only a server are left out.
    `extra_variables`: environment variables that all these programs need.
    `keeps_written_addresses`: whether the tasks listen at addresses that are written into the
    program. `identity`: how a program learns which task it is. `renamed_values`: {role:
    {placeholder: its value}}. In these values, the roles have the names that the program uses.
    """

    job: Job
    run: str
    data: dict[str, str]
    programs: Mapping[str, FlaggedProgram]
    server_roles: ServerRoles
    extra_variables: Mapping[str, str]
    keeps_written_addresses: bool
    identity: TaskIdentity
    renamed_values: OwnValues


def task_plan(shared: SharedByTasks, layout: Layout, seat: Seat, facts: HostFacts) -> TaskPlan:
    """Return the plan of one task. Raises UsageError for an unknown placeholder."""
    job, mode, role = shared.job, rules_of(shared.job.mode), seat.role
    values = {
        **command_line.placeholder_values(layout, seat, job, shared.run),
        **datasets.folder_placeholders(job, shared.data, facts.workdir),
        **datasets.part_placeholders(job, shared.data, seat, shared.run, facts.workdir),
    }
    chosen = {
        **shared.extra_variables,
        **shared.identity.variables(layout.cluster, role, seat.index),
        **datasets.part_variables(job, seat, sum(each.role == "worker" for each in layout.seats)),
    }
    program = shared.programs.get(role)
    command, flags = (program.role_program.job, program.flags) if program else (job, ())
    argv = command_line.task_command(
        command, facts, values, flags, shared.renamed_values.get(role, {})
    )
    if role in shared.server_roles.roles:
        argv = servers.server_command(argv[0], facts, shared.server_roles)
    return copy_fields(
        TaskPlan,
        seat,
        address=""
        if shared.keeps_written_addresses
        else layout.endpoint_by_task.get(seat.task, ""),
        port=None if shared.keeps_written_addresses else layout.port_by_task.get(seat.task),
        argv=argv,
        env=environment.task_environment(
            job, seat, layout, values, chosen, shared.identity.job_names, facts.proxies
        ),
        deciding=seat.task in layout.deciding,
        serves=role in mode.serving_roles,
        on_death=restarts.restart_scope(job, role),
        gang=bool(job.restart_max) and role in mode.gang,
    )


def host_plan(layout: Layout, host: Host, facts: HostFacts, resolved: Sequence[str]) -> HostPlan:
    """Return the plan of one host.

    `resolved`: the IP addresses of the host name under which the cluster lists this host.
    """
    return HostPlan(
        host=host.name,
        address=layout.address_by_host[host.name],
        mesh_port=layout.mesh_port_by_host[host.name],
        workdir=facts.workdir,
        python=str(facts.python),
        addresses=addresses.source_addresses(host, facts, resolved),
        versions=_software_versions(facts),
        ssh=ssh_settings_of(host),
    )


def _software_versions(facts: HostFacts) -> dict[str, str]:
    known = {
        "tfdeploy": facts.version,
        "Python": facts.python_version,
        "TensorFlow": facts.tensorflow,
        "Keras": facts.keras,
        "tf-keras": facts.tf_keras,
        "GPUs": ", ".join(
            f"{count} x {name}" for name, count in Counter(gpu.name for gpu in facts.gpus).items()
        ),
    }
    return {program: version for program, version in known.items() if version}
