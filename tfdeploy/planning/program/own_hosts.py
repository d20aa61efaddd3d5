"""Handles programs that find their role by host name: `worker_hosts.index(socket.gethostname())`.

Such a program contains the host names or addresses of its author's machines, and fails on a host
that is not in its list. So if a task asks for its host name, it gets the entry of the list at the
task's own index (runtime/own_host).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Cluster, Notes
from tfdeploy.planning.program.hardcoded_cluster import finds_role_itself, literal_texts
from tfdeploy.planning.source.expressions import last_name, literal_text, target_names
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.source import Program
from tfdeploy.runtime.job_synonyms import role_of_name

VARIABLE = "TFDEPLOY_TASK_WRITTEN_HOST"
_ASKS = ("gethostname", "gethostbyname", "getfqdn")
_HOST = re.compile(r"(?:grpc://)?(?=[^:]*[A-Za-z.])([A-Za-z0-9_.-]+)(?::\d+)?")


@dataclass(frozen=True)
class HostAliases:
    """The host names that tasks see instead of the real ones.

    `alias_by_task`: {task: its entry in the lists that are written into the program}.
    """

    alias_by_task: Mapping[str, str] = field(default_factory=dict)
    notes: Notes = ()

    def variables(self, task: str) -> dict[str, str]:
        return {VARIABLE: self.alias_by_task[task]} if task in self.alias_by_task else {}


def decide_host_aliases(
    job: Job, program: Program, planned: Cluster, *, knows_role: bool
) -> HostAliases:
    """Return the host names that tasks see, if the program finds its role by its host name.

    For any other program the result is empty. `knows_role`: the program learns its role from flags,
    TF_CONFIG or other variables, so that its host name does not matter.
    """
    where = _where_asks_for_host(program)
    if knows_role or not where or not rules_of(job.mode).takes_flags or job.cluster != "planned":
        return HostAliases()
    lists = _hosts_by_role(program, planned)
    listed_hosts = {
        f"{role}:{index}": host for role, hosts in lists.items() for index, host in enumerate(hosts)
    }
    if lists.keys() != planned.keys() or len({*listed_hosts.values()}) < len(listed_hosts):
        return HostAliases()
    tasks = [
        f"{role}:{index}" for role, endpoints in planned.items() for index in range(len(endpoints))
    ]
    hosts = {task: listed_hosts[task] for task in tasks if task in listed_hosts}
    listed = ", ".join(f"{task} is {host}" for task, host in list(hosts.items())[:3])
    note = (
        f"the program finds its task by the name of its host ({where}), so each task gets the host "
        f"name that the program's own lists have for this task ({listed})"
    )
    if lacking := ", ".join(task for task in tasks if task not in listed_hosts):
        note += (
            f"; these lists have no host for {lacking}: ask for fewer tasks with --workers or --ps"
        )
    return HostAliases(hosts, (note,))


def _where_asks_for_host(program: Program) -> str:
    """Return where the program asks for the name or address of its host, such as "train.py:12".

    Returns "" if the program does not ask for it, or does not make a cluster.
    """
    if not finds_role_itself(program):
        return ""
    asking = (place_of(call) for call in program.find(ast.Call) if last_name(call.func) in _ASKS)
    return next(asking, "")


def _hosts_by_role(program: Program, planned: Cluster) -> dict[str, list[str]]:
    """Return {role: the hosts in the program's first list of hosts for this role}.

    The name of the list shows the role: `ps_hosts = [...]`, `{"worker": [...]}`.
    """
    lists: dict[str, list[str]] = {}
    for name, entries in _named_lists(program):
        matches = [_HOST.fullmatch(each.strip()) for each in entries]
        if (role := role_of_name(name)) in planned and matches and all(matches):
            lists.setdefault(role, [match[1] for match in matches if match])
    return lists


def _named_lists(program: Program) -> Iterator[tuple[str, list[str]]]:
    for node in program.find(ast.Assign, ast.Dict):
        match node:
            case ast.Assign(targets, value):
                for name in target_names(targets):
                    yield name, literal_texts(value)
            case ast.Dict(keys, values):
                for key, value in zip(keys, values, strict=True):
                    yield literal_text(key) or "", literal_texts(value)
