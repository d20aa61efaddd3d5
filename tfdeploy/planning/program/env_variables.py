"""Sets environment variables such as CLUSTER_SPEC, PS_HOSTS, JOB_NAME and TASK_INDEX.

Launchers for YARN and Kubernetes describe the cluster by these variables. If they are missing, a
program that reads them fails with a KeyError, or each task acts as the first task and trains alone.
A variable is set only if the program reads it, and neither the program nor the job file sets it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Cluster, Notes, cluster_json, tf_config
from tfdeploy.planning.source.expressions import last_name, literal_text
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.source import Program

# {name of a variable, in capital letters: the kind of its value}.
_TABLE = """
    CLUSTER_SPEC=cluster PS_HOSTS=ps:hosts WORKER_HOSTS=worker:hosts CHIEF_HOSTS=chief:hosts
    MASTER_HOSTS=chief:hosts TASK_INDEX=index JOB_NAME=job TASK_TYPE=job TASK_ID=index
    JOB_INDEX=index NUM_PS=ps:count PS_COUNT=ps:count NUM_WORKERS=worker:count
    WORKER_COUNT=worker:count WORKER_CNT=worker:count
"""
_KINDS = dict(pair.split("=") for pair in _TABLE.split())
# These variables certainly describe a cluster. tfdeploy sets the variables of _TABLE only if the
# program reads one of _CERTAIN, or variables of two different kinds, such as an index and a count.
# A single other variable may mean something else.
_CERTAIN = ("CLUSTER_SPEC", "PS_HOSTS", "WORKER_HOSTS", "TASK_INDEX")
_OF_PLATFORMS = """
    POD_NAME CLUSTER_CONFIG SLURM_PROCID SLURM_NODELIST SLURM_JOB_NODELIST SLURMD_NODENAME
"""
_PARSERS = ("loads", "literal_eval")
_ACCESSES = ("environ", "getenv", "setdefault", "putenv")


@dataclass(frozen=True)
class ClusterVariables:
    """The environment variables that describe the cluster to a program.

    `json_names`: variables with a list of hosts that the program parses as JSON; in other
    variables, commas separate the hosts. `includes_task`: CLUSTER_SPEC also contains the task, as
    TF_CONFIG does. `unknown_variables`: {variable of another platform, such as Slurm, whose value
    tfdeploy does not know: where the program reads it}.
    """

    # The variables to set: {name: where the program reads it, "train.py:12"}.
    place_by_name: Mapping[str, str] = field(default_factory=dict)
    json_names: Collection[str] = ()
    includes_task: bool = False
    unknown_variables: Mapping[str, str] = field(default_factory=dict)

    def values(self, cluster: Cluster, role: str, index: int) -> dict[str, str]:
        """Return {variable: value} for one task.

        `cluster` and `role` must contain the program's own names for the roles.
        """
        return {
            name: self._variable_value(name, cluster, role, index) for name in self.place_by_name
        }

    @property
    def notes(self) -> Notes:
        texts = [
            f"the program reads {name} ({where}), whose value tfdeploy does not know: write "
            f"`env: {{{name}: ...}}`, with placeholders such as "
            "{job_name}-{task_index} or {cluster}"
            for name, where in self.unknown_variables.items()
        ]
        if self.place_by_name:
            names = ", ".join(f"{name} ({where})" for name, where in self.place_by_name.items())
            texts.insert(0, f"variables that tfdeploy sets because the program reads them: {names}")
        return tuple(texts)

    def _variable_value(self, name: str, cluster: Cluster, role: str, index: int) -> str:
        kind = _KINDS[name.upper()]
        if kind == "cluster":
            return tf_config(cluster, role, index) if self.includes_task else cluster_json(cluster)
        if kind in ("job", "index"):
            return role if kind == "job" else str(index)
        host_role, what = kind.split(":")
        other_name = "master" if host_role == "chief" else host_role
        hosts = cluster.get(host_role) or cluster.get(other_name, ())
        if what == "count":
            return str(len(hosts))
        return json.dumps(list(hosts)) if name in self.json_names else ",".join(hosts)


def decide_cluster_variables(job: Job, program: Program) -> ClusterVariables:
    """Return the variables to set for a job: none in a mode without a TensorFlow cluster."""
    mode = rules_of(job.mode)
    if not mode.tensorflow or mode.single:
        return ClusterVariables()
    reads, as_json = _variables_read(program)
    given = {*job.env, *job.secrets, *_variables_set(program)}
    left = {name: where for name, where in reads.items() if name not in given}
    names = {name: where for name, where in left.items() if name.upper() in _KINDS}
    kinds = {_KINDS[name.upper()].rpartition(":")[2] for name in names}
    if len(kinds) < 2 and not any(name.upper() in _CERTAIN for name in names):
        names = {}
    unknown = {name: where for name, where in left.items() if name in _OF_PLATFORMS.split()}
    # A program that contains the text "cluster" expects an entry "cluster" in CLUSTER_SPEC, next to
    # the entry "task". If it also reads TF_CONFIG, which has this entry, the text proves nothing.
    with_task = program.has_string_constant("cluster") and not program.has_string_constant(
        "TF_CONFIG"
    )
    return ClusterVariables(names, as_json, with_task, unknown)


def reads_cluster(program: Program) -> bool:
    """Return whether the program reads a variable that is certain to describe the cluster."""
    return any(name.upper() in _CERTAIN for name in _variables_read(program)[0])


def _variables_read(program: Program) -> tuple[dict[str, str], set[str]]:
    """Return the environment variables that the program reads, and those that it parses.

    The first value is {variable: where the program first reads it, such as "train.py:12"}. The
    second value contains the variables that the program parses as JSON or as a Python literal.
    """
    first: dict[str, str] = {}
    for node in program.find(ast.Subscript, ast.Compare, ast.Call):
        name, is_set = _variable_used(node)
        if name and not is_set:
            first.setdefault(name, place_of(node))
    parsers = [node for node in program.find(ast.Call) if last_name(node.func) in _PARSERS]
    return first, {_variable_used(argument)[0] for call in parsers for argument in call.args} - {""}


def _variables_set(program: Program) -> Iterator[str]:
    """Yield the environment variables that the program sets itself."""
    uses = (_variable_used(node) for node in program.find(ast.Subscript, ast.Call))
    yield from (name for name, is_set in uses if is_set)


def _variable_used(node: ast.AST) -> tuple[str, bool]:
    """Return (the environment variable that the expression uses, whether the expression sets it).

    Returns ("", False) if the expression uses no variable. These expressions read a variable:
    `os.environ["X"]`, `os.environ.get("X")`, `os.getenv("X")`, `"X" in os.environ`. These set it:
    `os.environ["X"] = ...`, `os.environ.setdefault("X", ...)`.
    """
    is_set = False
    match node:
        case ast.Subscript(accessed, name, context):
            is_set = isinstance(context, ast.Store)
        case ast.Compare(name, comparators=[accessed, *_]) | ast.Call(
            ast.Attribute(accessed, "get"), [name, *_]
        ):
            pass
        case ast.Call(accessed, [name, *_]):
            is_set = last_name(accessed) in ("setdefault", "putenv")
        case _:
            return "", False
    if last_name(accessed) not in _ACCESSES:
        return "", False
    return literal_text(name) or "", is_set
