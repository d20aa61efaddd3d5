"""Finds clusters that are written into a program: dictionaries of jobs with literal addresses, and their places.

Reads syntax trees. A cluster that is built at run time is found in the task itself (runtime/planned_cluster).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfdeploy.model.cluster import Cluster
from tfdeploy.planning.source.flag_types import last_name
from tfdeploy.planning.source.source import Program
from tfdeploy.runtime.job_synonyms import counterparts

_ASK_FOR_HOST = ("gethostname", "gethostbyname", "getfqdn", "gethostbyname_ex", "ifaddresses", "uname", "node")
_SERVE = ("ClusterSpec", "Server")
_FILE_FORMATS = ("json", "yaml", "toml")
_ADDRESS = re.compile(r"(grpc://)?[A-Za-z0-9_.\-\[\]:]+:(\d{1,5})")


@dataclass(frozen=True)
class HardcodedCluster:
    """One cluster at one place, "train.py:12"; `counts`: job -> number of tasks."""

    where: str
    counts: Mapping[str, int]


def clusters(program: Program) -> tuple[HardcodedCluster, ...]:
    """Every literal cluster of the program, in the order of files and lines. Addresses with port 0 do not count."""
    found: list[HardcodedCluster] = []
    for path, tree in zip(program.paths, program.trees, strict=True):
        lists = _lists(tree)
        for node in ast.walk(tree):
            counts = _counts(node, lists) if isinstance(node, ast.Dict) else None
            if counts and isinstance(node, ast.Dict):
                found.append(HardcodedCluster(f"{path}:{node.lineno}", counts))
    return tuple(found)


def written_jobs(program: Program) -> tuple[HardcodedCluster, ...]:
    """The literal clusters, and those whose jobs alone are literal: `ClusterSpec({"ps": ps_hosts, "work": work_hosts})`,
    with 0 tasks each."""
    found = list(clusters(program))
    for path, tree in zip(program.paths, program.trees, strict=True):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or last_name(node.func) not in _SERVE:
                continue
            given = next(iter([*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "cluster")]), None)
            jobs = [_text(key) for key in given.keys if key] if isinstance(given, ast.Dict) else []
            if jobs and all(jobs):
                found.append(HardcodedCluster(f"{path}:{node.lineno}", dict.fromkeys(map(str, jobs), 0)))
    return tuple(found)


def finds_role_itself(program: Program) -> bool:
    """Whether it looks for its place by its host's name or address, or has its cluster in a file (`json.load`)."""
    called = [node.func for tree in program.trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {last_name(each) for each in called}
    parses = any(isinstance(each, ast.Attribute) and last_name(each.value) in _FILE_FORMATS for each in called)
    return bool(names.intersection(_SERVE)) and (parses or bool(names.intersection(_ASK_FOR_HOST)))


def differences(written: HardcodedCluster, plan: Cluster) -> tuple[str, ...]:
    """How the plan differs from the program's cluster, as text."""
    roles = counterparts(written.counts, plan)
    if not roles:
        return (f"its jobs {', '.join(written.counts)} are none of the plan's, so it stands",)
    texts: list[str] = []
    for job, count in written.counts.items():
        role = roles.get(job)
        if role is None:
            texts.append(f"the plan has nothing for its job {job}")
            continue
        texts += [f"its job {job} stands for {role}"] if role != job else []
        texts += [f"it has {count} of {job}, the plan {len(plan[role])}"] if count != len(plan[role]) else []
    return tuple(texts)


def _counts(node: ast.Dict, lists: Mapping[str, int]) -> dict[str, int] | None:
    """job -> number of tasks, where every key is a text and every value a list of addresses."""
    counts: dict[str, int] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        count = lists.get(value.id) if isinstance(value, ast.Name) else _addresses(value)
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or not count:
            return None
        counts[key.value] = count
    return counts


def _lists(tree: ast.Module) -> dict[str, int]:
    """name -> number of addresses, of every `name = ["pc-01:2222", ...]`."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        count = _addresses(node.value) if isinstance(node, ast.Assign) else None
        if count and isinstance(node, ast.Assign):
            found |= {target.id: count for target in node.targets if isinstance(target, ast.Name)}
    return found


def _addresses(node: ast.expr) -> int | None:
    """How many addresses with a port a literal list has; None for anything else."""
    found = [_ADDRESS.fullmatch(each.strip()) for each in texts(node)]
    return len(found) if found and all(match and match[2] != "0" for match in found) else None


def texts(node: ast.expr) -> list[str]:
    """The texts of `["a:1", "b:2"]`, `("a:1",)` or `"a:1,b:2".split(",")`; [] for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return [*str(_text(node.func.value) or "").split(",")]
    return [str(_text(each) or "") for each in node.elts] if isinstance(node, ast.List | ast.Tuple) else []


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
