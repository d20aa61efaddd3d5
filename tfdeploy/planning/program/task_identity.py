"""Decides how a program learns which task it is, if not by flags.

The program can learn it from TF_CONFIG, from variables that other launchers set, or from the name
of its host.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Cluster, Notes
from tfdeploy.planning.flags.appended_flags import NAME_THEM, AppendedFlags
from tfdeploy.planning.program import env_variables, hardcoded_cluster, job_names, own_hosts
from tfdeploy.planning.program.env_variables import ClusterVariables
from tfdeploy.planning.program.job_names import JobNames
from tfdeploy.planning.program.own_hosts import HostAliases
from tfdeploy.planning.source.source import Program
from tfdeploy.text import placeholders

_READERS = """
    TFConfigClusterResolver MultiWorkerMirroredStrategy CollectiveAllReduceStrategy
    ParameterServerStrategy ParameterServerStrategyV2 RunConfig
"""


@dataclass(frozen=True)
class TaskIdentity:
    """The sources, apart from flags, from which a program learns which task it is."""

    job_names: JobNames
    cluster_variables: ClusterVariables
    own_hosts: HostAliases

    @property
    def notes(self) -> Notes:
        return (*self.job_names.notes, *self.cluster_variables.notes, *self.own_hosts.notes)

    def variables(self, planned: Cluster, role: str, index: int) -> dict[str, str]:
        """Return the variables, without TF_CONFIG, that tell the program which task it is."""
        values = self.cluster_variables.values(
            self.job_names.cluster(planned), *self.job_names.task(role, index)
        )
        return {**values, **self.own_hosts.variables(f"{role}:{index}")}


def decide_task_identity(
    job: Job, program: Program, planned: Cluster, *, index_by_flag: bool
) -> TaskIdentity:
    """Decide how the program learns which task it is, if not by flags.

    `index_by_flag`: True if a flag tells the program its task index.
    """
    variables = env_variables.decide_cluster_variables(job, program)
    knows_role = index_by_flag or bool(variables.place_by_name) or reads_tf_config(program)
    hosts = own_hosts.decide_host_aliases(job, program, planned, knows_role=knows_role)
    return TaskIdentity(job_names.decide_job_names(job, program, planned), variables, hosts)


def isolation_note(
    job: Job, program: Program, added: AppendedFlags, worker_count: int
) -> str | None:
    """Return a note if the program has no way to learn about its cluster, else None.

    Each worker of such a program would train alone, and no error would show this. `worker_count`:
    the number of workers that run the program."""
    mode = rules_of(job.mode)
    clustered = job.flags in (None, "auto") and not (
        mode.single or mode.ranks or "one_client" in mode.traits
    )
    if (
        not (clustered and worker_count)
        or any(placeholders.placeholder_names(word) for word in (*job.command, *job.env.values()))
        or added.given
        or program.unread_reason
        or not (mode.takes_flags or program.imports_tensorflow)
        or hardcoded_cluster.finds_role_itself(program)
        or hardcoded_cluster.literal_clusters(program)
        or env_variables.reads_cluster(program)
        or reads_tf_config(program)
    ):
        return None
    several = f"each of the {worker_count} workers would train alone"
    who = several if worker_count > 1 else "the worker would not know its cluster"
    line = program.script_line
    if line is not None and not line.passes_arguments:
        lacking = f"{who}, because {program.path} gets none of its flags about the cluster"
        return None if line.uses_variables else lacking
    return (
        f"{who}: {program.path} defines no known flag for the cluster, and does not seem to read "
        f"TF_CONFIG: {NAME_THEM}"
    )


def reads_tf_config(program: Program) -> bool:
    """Return whether the program names TF_CONFIG, or a TensorFlow class that reads TF_CONFIG."""
    return program.has_string_constant("TF_CONFIG") or program.uses_any_name(*_READERS.split())
