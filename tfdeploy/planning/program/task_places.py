"""How a program learns a task's place in the cluster, apart from flags: TF_CONFIG, variables of other launchers, its host."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfdeploy.model.cluster import Cluster
from tfdeploy.model.job import Job
from tfdeploy.planning.program import command_line, env_variables, job_names, own_hosts
from tfdeploy.planning.program.env_variables import ClusterVariables
from tfdeploy.planning.program.job_names import JobNames
from tfdeploy.planning.program.own_hosts import OwnHosts
from tfdeploy.planning.source.source import Program


@dataclass(frozen=True)
class TaskPlaces:
    job_names: JobNames = field(default_factory=JobNames)
    cluster_variables: ClusterVariables = field(default_factory=ClusterVariables)
    own_hosts: OwnHosts = field(default_factory=OwnHosts)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.job_names.notes, *self.cluster_variables.notes, *self.own_hosts.notes)

    def variables(self, planned: Cluster, role: str, index: int) -> dict[str, str]:
        """The variables of one task, apart from TF_CONFIG."""
        values = self.cluster_variables.values(self.job_names.cluster(planned), *self.job_names.task(role, index))
        return {**values, **self.own_hosts.variables(f"{role}:{index}")}


def decide(job: Job, program: Program, planned: Cluster, *, by_flag: bool) -> TaskPlaces:
    """`by_flag`: flags tell the program its index."""
    variables = env_variables.decide(job, program)
    is_told = by_flag or bool(variables.names) or command_line.reads_tf_config(program)
    hosts = own_hosts.decide(job, program, planned, is_told=is_told)
    return TaskPlaces(job_names.decide(job, program, planned), variables, hosts)
