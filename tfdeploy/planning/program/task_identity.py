"""Decides how a program learns which task it is, apart from flags.

The sources are TF_CONFIG, variables of other launchers, and the task's host name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.model.cluster import Cluster
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.model.text import placeholders
from tfdeploy.planning.flags.appended_flags import NAME_THEM, Appended
from tfdeploy.planning.program import env_variables, hardcoded_cluster, job_names, own_hosts
from tfdeploy.planning.program.env_variables import ClusterVariables
from tfdeploy.planning.program.job_names import JobNames
from tfdeploy.planning.program.own_hosts import OwnHosts
from tfdeploy.planning.source.source import Program

_READERS = """
    TFConfigClusterResolver MultiWorkerMirroredStrategy CollectiveAllReduceStrategy ParameterServerStrategy
    ParameterServerStrategyV2 RunConfig
"""


@dataclass(frozen=True)
class TaskIdentity:
    """The sources, apart from flags, by which the tasks learn which task they are."""

    job_names: JobNames
    cluster_variables: ClusterVariables
    own_hosts: OwnHosts

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.job_names.notes, *self.cluster_variables.notes, *self.own_hosts.notes)

    def variables(self, planned: Cluster, role: str, index: int) -> dict[str, str]:
        """Return the variables of one task, apart from TF_CONFIG."""
        values = self.cluster_variables.values(
            self.job_names.cluster(planned), *self.job_names.task(role, index)
        )
        return {**values, **self.own_hosts.variables(f"{role}:{index}")}


def decide(job: Job, program: Program, planned: Cluster, *, by_flag: bool) -> TaskIdentity:
    """Return how the tasks learn their identity.

    `by_flag`: a flag gives the program its task index.
    """
    variables = env_variables.decide(job, program)
    knows_role = by_flag or bool(variables.names) or reads_tf_config(program)
    hosts = own_hosts.decide(job, program, planned, knows_role=knows_role)
    return TaskIdentity(job_names.decide(job, program, planned), variables, hosts)


def alone(job: Job, program: Program, added: Appended, workers: int) -> str | None:
    """Return a note if nothing describes the cluster to the program; None otherwise.

    Then each worker trains by itself, and no error shows it.
    """
    mode_rules = rules(job.mode)
    clustered = job.flags in (None, "auto") and not (
        mode_rules.single or mode_rules.ranks or "one_client" in mode_rules.traits
    )
    named = any(placeholders.names(word) for word in (*job.command, *job.env.values()))
    given = (
        named
        or added.flags
        or added.own
        or program.unread
        or not (mode_rules.takes_flags or program.imports_tensorflow)
    )
    if not clustered or given or _knows_otherwise(program):
        return None
    who = (
        f"{workers} workers will not know of each other"
        if workers > 1
        else "the worker will not know of its cluster"
    )
    return (
        f"{who}: {program.path} defines no flag of a cluster that is known, and does not seem to "
        f"read TF_CONFIG: {NAME_THEM}"
    )


def _knows_otherwise(program: Program) -> bool:
    """Return whether the program gets its cluster without flags.

    The cluster can come from the environment, a file or the host name, or be written into the
    program.
    """
    by_itself = hardcoded_cluster.finds_role_itself(program) or bool(
        hardcoded_cluster.clusters(program)
    )
    return by_itself or env_variables.reads_cluster(program) or reads_tf_config(program)


def reads_tf_config(program: Program) -> bool:
    """Return whether the program names TF_CONFIG, or a TensorFlow class that reads TF_CONFIG."""
    return program.has_text("TF_CONFIG") or program.uses(*_READERS.split())
