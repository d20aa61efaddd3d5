"""Finds clusters that are written into a program: dictionaries from job names to literal addresses.

Only the program's syntax trees are read. If the program builds a cluster while it runs, the module
runtime/planned_cluster finds this cluster in each task.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tfdeploy.model.plan import Cluster, Notes
from tfdeploy.planning.source.expressions import (
    argument,
    elements,
    last_name,
    literal_text,
    target_names,
)
from tfdeploy.planning.source.parsed_file import ParsedFile, place_of
from tfdeploy.planning.source.source import Program
from tfdeploy.runtime.job_synonyms import map_jobs_to_roles

_ASK_FOR_HOST = "gethostname gethostbyname getfqdn gethostbyname_ex ifaddresses uname node"
_SERVE = ("ClusterSpec", "Server")
_FILE_FORMATS = ("json", "yaml", "toml")
_ADDRESS = re.compile(r"(grpc://)?[A-Za-z0-9_.\-\[\]:]+:(\d{1,5})")


@dataclass(frozen=True)
class HardcodedCluster:
    """A cluster that is written into the program, at the place `where` ("train.py:12").

    `count_by_job`: {job name: number of tasks}.
    """

    where: str
    count_by_job: Mapping[str, int]


@lru_cache(maxsize=4)
def literal_clusters(program: Program) -> tuple[HardcodedCluster, ...]:
    """Return every cluster that is written into the program, in the order of files and lines.

    A cluster is a dictionary of literal addresses. A dictionary does not count as a cluster if one
    of its addresses has port 0.
    """
    literal: list[HardcodedCluster] = []
    for module in program.modules:
        lists = _address_list_lengths(module)
        for node in module.find(ast.Dict):
            if counts := _addresses_per_job(node, lists):
                literal.append(HardcodedCluster(place_of(node), counts))
    return tuple(literal)


def clusters_with_job_names(program: Program) -> tuple[HardcodedCluster, ...]:
    """Return the clusters whose job names are written into the program.

    If the addresses are not literal, as in `ClusterSpec({"ps": ps_hosts, "work": work_hosts})`, the
    number of tasks of each job is unknown, and 0 in the result.
    """
    written = list(literal_clusters(program))
    for node in program.find(ast.Call):
        match argument(node, "cluster", 0) if last_name(node.func) in _SERVE else None:
            case ast.Dict(keys):
                jobs = [literal_text(key) for key in keys if key]
                if jobs and all(jobs):
                    counts = dict.fromkeys(map(str, jobs), 0)
                    written.append(HardcodedCluster(place_of(node), counts))
    return tuple(written)


def finds_role_itself(program: Program) -> bool:
    """Return whether the program finds its role without flags and variables.

    This is assumed if the program makes a cluster and also does one of two things: it asks for its
    host name or address, or it reads a file with a call such as `json.load`.
    """
    called = [node.func for node in program.find(ast.Call)]
    names = set(map(last_name, called))
    parses = any(
        isinstance(each, ast.Attribute) and last_name(each.value) in _FILE_FORMATS
        for each in called
    )
    return not names.isdisjoint(_SERVE) and (parses or not names.isdisjoint(_ASK_FOR_HOST.split()))


def plan_effect_notes(written: HardcodedCluster, plan: Cluster) -> Notes:
    """Return notes: whether the plan's cluster replaces the program's, and how the two differ."""
    roles = map_jobs_to_roles(written.count_by_job, plan)
    if not roles:
        return (
            f"is used, because the plan has none of its jobs ({', '.join(written.count_by_job)})",
        )
    texts = ["is replaced by the plan's cluster"]
    if "ps" in plan and "ps" not in roles.values():
        texts.append("it has no ps, so write `roles: {ps: {count: 0}}`")
    for job, count in written.count_by_job.items():
        role = roles.get(job)
        if role is None:
            texts.append(f"the plan has no tasks for the program's job {job}")
            continue
        if role != job:
            texts.append(f"the program's job {job} means the role {role}")
        if count != len(plan[role]):
            texts.append(f"{job} tasks: {count} in the program, {len(plan[role])} in the plan")
    return tuple(texts)


def _addresses_per_job(node: ast.Dict, list_sizes: Mapping[str, int]) -> dict[str, int] | None:
    """Return {job name: number of addresses}, for a dictionary that describes a cluster.

    Returns None unless every key is a text and every value is a list of addresses.
    """
    counts: dict[str, int] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        count = list_sizes.get(value.id) if isinstance(value, ast.Name) else _count_addresses(value)
        job = literal_text(key)
        if job is None or not count:
            return None
        counts[job] = count
    return counts


def _address_list_lengths(module: ParsedFile) -> dict[str, int]:
    """Return {name: number of addresses}, for every `name = ["pc-01:2222", ...]`."""
    lists: dict[str, int] = {}
    for node in module.find(ast.Assign):
        if count := _count_addresses(node.value):
            lists |= dict.fromkeys(target_names(node.targets), count)
    return lists


def _count_addresses(node: ast.expr) -> int | None:
    """Return the length of a literal list of addresses "host:port"; None for anything else."""
    matches = [_ADDRESS.fullmatch(each.strip()) for each in literal_texts(node)]
    return len(matches) if matches and all(match and match[2] != "0" for match in matches) else None


def literal_texts(node: ast.expr) -> list[str]:
    """Return the texts of `["a:1", "b:2"]`, `("a:1",)` or `"a:1,b:2".split(",")`.

    Returns [] for any other expression.
    """
    match node:
        case ast.Call(ast.Attribute(ast.Constant(str(joined)), "split")):
            return joined.split(",")
    return [literal_text(each) or "" for each in elements(node)]
