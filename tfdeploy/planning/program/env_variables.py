"""The variables by which other launchers tell a program its cluster, where the program reads them: CLUSTER_SPEC, PS_HOSTS,
JOB_NAME, TASK_INDEX. Reads syntax trees.

YARN and Kubernetes launchers of TensorFlow set these names. Without them the program ends with a KeyError, or each task
takes itself for the first and trains alone. One that the program sets itself, or the job file does, is left alone.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tfdeploy.model.cluster import Cluster, cluster_json, tf_config
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.planning.source.flag_types import last_name, text
from tfdeploy.planning.source.source import Program

# name, in capitals -> what it is
_KINDS = {
    "CLUSTER_SPEC": "cluster",
    "PS_HOSTS": "ps hosts",
    "WORKER_HOSTS": "worker hosts",
    "CHIEF_HOSTS": "chief hosts",
    "MASTER_HOSTS": "chief hosts",
    "TASK_INDEX": "index",
    "JOB_NAME": "job",
    "TASK_TYPE": "job",
    "TASK_ID": "index",
    "JOB_INDEX": "index",
    "NUM_PS": "ps count",
    "PS_COUNT": "ps count",
    "NUM_WORKERS": "worker count",
    "WORKER_COUNT": "worker count",
    "WORKER_CNT": "worker count",
}
_CERTAIN = ("CLUSTER_SPEC", "PS_HOSTS", "WORKER_HOSTS", "TASK_INDEX")  # one of them alone is enough
_OF_PLATFORMS = ("POD_NAME", "CLUSTER_CONFIG", "SLURM_PROCID", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURMD_NODENAME")
_PARSERS = ("loads", "literal_eval")


@dataclass(frozen=True)
class Told:
    """The variables that tell this program its cluster. `as_json`: those whose hosts it reads as a list, not as a text with
    commas. `whole`: CLUSTER_SPEC has cluster and task, as TF_CONFIG does."""

    names: Mapping[str, str]  # name -> where it is read, "train.py:12"
    as_json: Collection[str] = ()
    whole: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)  # what a platform would set, and cannot be known

    def values(self, cluster: Cluster, role: str, index: int) -> dict[str, str]:
        """Of one task, by the program's names of roles."""
        return {name: self._value(name, cluster, role, index) for name in self.names}

    @property
    def notes(self) -> tuple[str, ...]:
        texts = [
            f"the program reads {name} ({where}), which its launcher set and tfdeploy does not know: write "
            f"`env: {{{name}: ...}}`, with placeholders such as {{job_name}}-{{task_index}} or {{cluster}}"
            for name, where in self.missing.items()
        ]
        if self.names:
            texts.insert(0, f"set because the program reads them: {', '.join(f'{n} ({at})' for n, at in self.names.items())}")
        return tuple(texts)

    def _value(self, name: str, cluster: Cluster, role: str, index: int) -> str:
        kind = _KINDS[name.upper()]
        if kind == "cluster":
            return tf_config(cluster, role, index) if self.whole else cluster_json(cluster)
        if kind in ("job", "index"):
            return role if kind == "job" else str(index)
        of, what = kind.split()
        hosts = cluster.get(of) or (cluster.get("master", ()) if of == "chief" else ())
        if what == "count":
            return str(len(hosts))
        return json.dumps(list(hosts)) if name in self.as_json else ",".join(hosts)


def told(job: Job, program: Program) -> Told:
    """What the program reads, no one sets, and the plan knows."""
    mode = rules(job.mode)
    if not mode.tensorflow or mode.single:
        return Told({})
    reads, as_json = _reads(program)
    given = {*job.env, *job.secrets, *_written(program)}
    left = {name: where for name, where in reads.items() if name not in given}
    names = {name: where for name, where in left.items() if name.upper() in _KINDS}
    if not any(name.upper() in _CERTAIN for name in names) and len({_KINDS[name.upper()].split()[-1] for name in names}) < 2:
        names = {}
    missing = {name: where for name, where in left.items() if name in _OF_PLATFORMS}
    return Told(names, as_json, _wants_whole(program), missing)


def reads_cluster(program: Program) -> bool:
    """Whether the program reads one of the variables that are supplied."""
    return any(name.upper() in _CERTAIN for name in _reads(program)[0])


def _wants_whole(program: Program) -> bool:
    """Google's form has the cluster under "cluster", as TF_CONFIG does, which such a program does not read."""
    words = {node.value for tree in program.trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return "cluster" in words and "TF_CONFIG" not in words


def _reads(program: Program) -> tuple[dict[str, str], set[str]]:
    """name -> where it is read; and which are parsed as JSON or a literal."""
    found: dict[str, str] = {}
    as_json: set[str] = set()
    for path, tree in zip(program.paths, program.trees, strict=True):
        here = [(node.lineno, name) for node in ast.walk(tree) if (name := _read(node))]  # type: ignore[attr-defined]
        for line, name in sorted(here):
            found.setdefault(name, f"{path}:{line}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and last_name(node.func) in _PARSERS:
                as_json |= {name for argument in node.args for name in [_read(argument)] if name}
    return found, as_json


def _read(node: ast.AST) -> str:
    """The variable that `os.environ["X"]`, `os.environ.get("X")`, `os.getenv("X")` or `"X" in os.environ` asks for."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and last_name(node.value) == "environ":
        return text(node.slice) or ""
    if isinstance(node, ast.Compare) and last_name(node.comparators[0]) == "environ":
        return text(node.left) or ""
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    got = isinstance(node.func, ast.Attribute) and node.func.attr == "get" and last_name(node.func.value) == "environ"
    return (text(node.args[0]) or "") if got or last_name(node.func) == "getenv" else ""


def _written(program: Program) -> Iterator[str]:
    """The variables that the program sets itself: `os.environ["X"] = ...`, `os.environ.setdefault("X", ...)`."""
    for tree in program.trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and last_name(node.value) == "environ":
                yield text(node.slice) or ""
            elif isinstance(node, ast.Call) and node.args and last_name(node.func) in ("setdefault", "putenv"):
                yield text(node.args[0]) or ""
