"""Finds the program's own names for the roles, such as `master` for the chief.

A program compares `--job_name`, or the task type of TF_CONFIG, with its own job names, and uses
these names to place operations (`/job:work`). For example, TensorFlow 1 programs for Cloud ML or
tf-operator know the chief only as `master`. If no task has this name, no task creates the model,
and all tasks wait until the model exists.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tfdeploy.errors import Refused
from tfdeploy.model.job import Job
from tfdeploy.model.modes import ModeRules, rules_of
from tfdeploy.model.plan import Cluster, Notes
from tfdeploy.planning.flags.role_programs import RoleProgram
from tfdeploy.planning.program import hardcoded_cluster, servers
from tfdeploy.planning.source.expressions import elements, literal_text, target_names
from tfdeploy.planning.source.parsed_file import enclosing_nodes, place_of, subtree
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used
from tfdeploy.runtime.job_synonyms import map_jobs_to_roles, role_of_name

MASTER = "master"
_CHIEFS = (MASTER, "chief")
_INDEX = re.compile(r"index|task_?id|rank", re.IGNORECASE)


@dataclass(frozen=True)
class JobNames:
    """The program's own names for the roles, as TF_CONFIG and other variables use them.

    `names`: {role: the program's name for it}, if this differs from the role. `leader`: the name
    that worker:0 gets, because the program needs a chief and the plan has none; "" in all other
    cases.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    leader: str = ""
    notes: Notes = ()

    def cluster(self, planned: Cluster) -> Cluster:
        """Return the plan's cluster with the program's own names for the roles."""
        renamed = {self.names.get(role, role): endpoints for role, endpoints in planned.items()}
        if not self.leader:
            return renamed
        first, *others = planned["worker"]
        return {**renamed, self.leader: (first,), self.names.get("worker", "worker"): tuple(others)}

    def task(self, role: str, index: int) -> tuple[str, int]:
        """Return (type, index) of a task as the program expects them, for example in TF_CONFIG."""
        if self.leader and role == "worker":
            return (self.names.get(role, role), index - 1) if index else (self.leader, 0)
        return self.names.get(role, role), index


def role_names(job: Job, program: Program) -> dict[str, str]:
    """Return {role: the program's own name for it}, for those roles that have such a name.

    The name comes from the job file, or else from a cluster that is written into the program.
    """
    return {**_names_from_program(program, rules_of(job.mode)), **_names_from_job(job)}


def decide_job_names(job: Job, program: Program, planned: Cluster) -> JobNames:
    """Return the names of the roles for TF_CONFIG.

    The job file may set the names. If the program calls tf.estimator.train_and_evaluate and the
    plan has no chief, worker:0 gets the name of a chief. If the program looks for `master` in
    TF_CONFIG and does not contain the text "chief", the chief is called `master`.
    """
    mode, names = rules_of(job.mode), _names_from_job(job)
    if "one_client" in mode.traits:
        return JobNames({"chief": servers.client_job_name(program)} if "chief" in planned else {})
    if not mode.takes_flags or "worker" not in planned:
        return JobNames()
    called, why, asks = names.get("chief", ""), "`roles` of the job", ""
    for use in () if called or "chief" in planned else tf_names_used.tensorflow_uses(program):
        if use.bare_name == "estimator.train_and_evaluate":
            called, why = "chief", f"tf.{use.name} needs a chief ({use.where})"
    if not called and not program.has_string_constant("chief"):
        asks = _where_asks_for(MASTER, program)
    if asks:
        called, why = MASTER, f"{asks} looks for the job {MASTER} in TF_CONFIG"
    if called and "chief" in planned:
        note = f"the chief is called {called} in TF_CONFIG: {why}"
        return JobNames({**names, "chief": called}, notes=(note,))
    if called and not (asks and _leads_by_index(program)):
        note = f"in TF_CONFIG, worker:0 is {called}:0, worker:1 is worker:0, and so on: {why}"
        return JobNames(names, called, (note,))
    return JobNames(names, notes=_missing_chief_notes(program, mode, planned))


def refuse_fixed_job(job: Job, role_program: RoleProgram, names: Mapping[str, str]) -> None:
    """Raise Refused if the program runs as a ps but starts servers of another job only, or if it
    runs as a worker but starts servers of the ps only.

    Nothing is refused if the role of the servers' job is unknown, or if a worker does not name the
    job of the ps, because it needs no ps. `names`: the result of `role_names`.
    """
    fixed, where = servers.only_server_job(role_program.program)
    meant = {name: role for role, name in names.items()}.get(fixed) or role_of_name(fixed)
    wrong = [role for role in role_program.roles if (role == "ps") != (meant == "ps")]
    if meant != "ps" and not role_program.program.has_string_constant(names.get("ps", "ps")):
        return
    if meant and wrong and "ps" in rules_of(job.mode).usable_roles:
        raise Refused(
            f"every server that the program starts is of the job {fixed}, and the program would "
            f"also run as {wrong[0]}",
            where=where,
            next="give each role its own program, as in `command: [python, worker.py]` with "
            "`roles: {ps: {command: [python, ps.py]}}`, or add --force to go on",
        )


def _names_from_job(job: Job) -> dict[str, str]:
    return {role: rule.called for role, rule in job.roles.items() if rule.called}


def _names_from_program(program: Program, mode: ModeRules) -> dict[str, str]:
    """Return {role: the name of its job in the clusters that are written into the program}.

    A role is left out if its job has the name of the role itself, or if the job has different names
    in different clusters.
    """
    if not mode.takes_flags:
        return {}
    jobs = {(name, role) for name, role, _ in _program_jobs(program, mode)}
    times = Counter(role for _, role in jobs)
    return {role: name for name, role in jobs if name != role and times[role] == 1}


def _program_jobs(program: Program, mode: ModeRules) -> Iterator[tuple[str, str, str]]:
    """Yield (job name, role, "train.py:12") for each job of a cluster written into the program."""
    for written in hardcoded_cluster.clusters_with_job_names(program):
        for name, role in map_jobs_to_roles(written.count_by_job, mode.usable_roles).items():
            yield name, role, written.where


def _missing_chief_notes(program: Program, mode: ModeRules, planned: Cluster) -> Notes:
    """Return a note if the program expects a chief but the plan has none.

    Without a chief, perhaps no task creates the model, and all tasks wait for it.
    """
    if "chief" in planned:
        return ()
    # True if worker 0 creates the model when there is no chief. This is usual in TensorFlow 2, and
    # needs no note.
    either = program.has_string_constant("chief") and _leads_by_index(program)
    signs = [
        f"the program's cluster has a job {name} ({where})"
        for name, role, where in _program_jobs(program, mode)
        if role == "chief"
    ]
    signs += [
        f"the program looks for the job {name} in TF_CONFIG ({where})"
        for name in (() if either else _CHIEFS)
        if (where := _where_asks_for(name, program))
    ]
    return tuple(
        f"{sign}, but the plan has no chief: if only the chief creates the model, all workers "
        "wait for it. Give the role chief a host in the inventory"
        for sign in signs[:1]
    )


def _where_asks_for(name: str, program: Program) -> str:
    """Return where the program compares a value with `name` or uses `name` as a key.

    The place is a text such as "train.py:12".
    Returns "" if there is no such place, or if the program does not read TF_CONFIG.
    """
    if not program.has_string_constant("TF_CONFIG"):
        return ""
    places = (
        place_of(each)
        for node in program.find(ast.Compare, ast.Subscript, ast.Call, ast.Assign)
        for each in _lookup_expressions(node)
        if literal_text(each) == name
    )
    return next(places, "")


def _leads_by_index(program: Program) -> bool:
    """Return whether the program takes the task with index 0 as its chief, whatever its role is.

    An example is `is_chief = index == 0`. A test such as `kind == "master" and index == 0` does not
    count, because it also tests the role.
    """
    return any(
        _INDEX.search(ast.unparse(side))
        for node in program.find(ast.Compare, ast.UnaryOp)
        for side in _compared_with_zero(node)
        if not any(map(_tests_role_too, enclosing_nodes(node)))
    )


def _tests_role_too(node: ast.AST) -> bool:
    """Return True for an `and` that also tests the role: `kind == "master" and ...`."""
    match node:
        case ast.BoolOp(ast.And()):
            return any(getattr(each, "value", None) in _CHIEFS for each in subtree(node))
    return False


def _compared_with_zero(node: ast.AST) -> tuple[ast.AST, ...]:
    """Return `index` for a test such as `index == 0`, `index < 1`, `not index` or `index != 0`.

    Returns () for any other expression.
    """
    match node:
        case (
            ast.UnaryOp(ast.Not(), index)
            | ast.Compare(index, comparators=[ast.Constant(0 | 1), *_])
            | ast.Compare(ast.Constant(0 | 1), comparators=[index, *_])
        ):
            return (index,)
    return ()


def _lookup_expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions in this node that may be a job name for which the program looks.

    They are both sides of a comparison, the key in `x[key]` and `x.get(key)`, and the value of a
    constant (`MASTER = "master"`).
    """
    match node:
        case ast.Compare(left, _, others):
            for side in (left, *others):
                yield from elements(side) or [side]
        case ast.Subscript(slice=key) | ast.Call(ast.Attribute(attr="get"), [key, *_]):
            yield key
        case ast.Assign(targets, value) if any(map(str.isupper, target_names(targets))):
            yield value
