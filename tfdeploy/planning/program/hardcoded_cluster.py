"""Finds clusters that are written into a program: dictionaries of jobs with literal addresses, and their places.

Reads syntax trees. A cluster that is built at run time is found in the task itself (runtime/planned_cluster).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfdeploy.model.cluster import Cluster
from tfdeploy.planning.program.source import Program

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


def differences(written: HardcodedCluster, plan: Cluster) -> tuple[str, ...]:
    """How the plan differs from the program's cluster, as text. As in the runtime, a single job of another name is worker."""
    known = {job for job in written.counts if _role(job, plan)}
    if not known and len(written.counts) == 1 and "worker" in plan:
        ((job, count),) = written.counts.items()
        return (f"its job {job} stands for worker", *_count(job, count, len(plan["worker"])))
    if not known:
        return (f"its jobs {', '.join(written.counts)} are none of the plan's, so it stands",)
    texts: list[str] = []
    for job, count in written.counts.items():
        role = _role(job, plan)
        texts += _count(job, count, len(plan[role])) if role else (f"the plan has nothing for its job {job}",)
    return tuple(texts)


def _count(job: str, written: int, planned: int) -> tuple[str, ...]:
    return () if written == planned else (f"it has {written} of {job}, the plan {planned}",)


def _role(job: str, plan: Cluster) -> str | None:
    role = job if job in plan else {"master": "chief"}.get(job, "")
    return role if role in plan else None


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
    """How many addresses `["a:1", "b:2"]`, `("a:1",)` or `"a:1,b:2".split(",")` has; None for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        texts = [*str(_text(node.func.value) or "").split(",")]
    elif isinstance(node, ast.List | ast.Tuple):
        texts = [str(_text(element) or "") for element in node.elts]
    else:
        return None
    found = [_ADDRESS.fullmatch(text.strip()) for text in texts]
    return len(found) if found and all(match and match[2] != "0" for match in found) else None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
