"""The ways, beside flags, by which a program learns a task's place in the cluster: the names in TF_CONFIG, the variables of
other launchers, its own host."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfdeploy.model.cluster import Cluster
from tfdeploy.model.job import Job
from tfdeploy.planning.program import command_line, env_variables, job_names, own_hosts
from tfdeploy.planning.program.env_variables import Told
from tfdeploy.planning.program.job_names import JobNames
from tfdeploy.planning.program.own_hosts import OwnHosts
from tfdeploy.planning.source.source import Program


@dataclass(frozen=True)
class TaskPlaces:
    called: JobNames = field(default_factory=JobNames)
    told: Told = field(default_factory=lambda: Told({}))
    hosts: OwnHosts = field(default_factory=OwnHosts)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.called.notes, *self.told.notes, *self.hosts.notes)

    def variables(self, planned: Cluster, role: str, index: int) -> dict[str, str]:
        """Of one task, beside TF_CONFIG."""
        told = self.told.values(self.called.cluster(planned), *self.called.task(role, index))
        return {**told, **self.hosts.variables(f"{role}:{index}")}


def decide(job: Job, program: Program, planned: Cluster, *, by_flag: bool) -> TaskPlaces:
    """`by_flag`: flags tell the program its index."""
    told = env_variables.told(job, program)
    otherwise = by_flag or bool(told.names) or command_line.reads_tf_config(program)
    hosts = own_hosts.decide(job, program, planned, told=otherwise)
    return TaskPlaces(job_names.decide(job, program, planned), told, hosts)
