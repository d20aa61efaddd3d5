"""Which tasks run tfdeploy's own server, because the program is the client or the chief alone. Reads syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

from tfdeploy.model.cluster import ROLES
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.modes import rules
from tfdeploy.planning.program import hardcoded_cluster, tf_names_used
from tfdeploy.planning.program.source import Program

MODULE = "tfdeploy_server"  # on PYTHONPATH of every task: tfdeploy/runtime/site
_SERVERS = ("distribute.Server", "train.Server")
_JOB = re.compile(r"/job:([A-Za-z]\w*)")


@dataclass(frozen=True)
class Served:
    """The roles whose tasks are plain servers instead of the program, and why. `job`: the name of the workers' job, where the
    program uses a name of its own."""

    roles: Collection[str] = ()
    note: str | None = None
    job: str = ""


def served(job: Job, program: Program, roles: Collection[str]) -> Served:
    """In ingraph every server; in coordinator those of a program that never starts one. `roles`: those that have tasks."""
    mode = rules(job.mode)
    if mode.lead is None:
        return Served()
    listed = " and ".join(role for role in mode.takes if role in mode.serves and role in roles)
    if "one_client" in mode.traits:
        named = own_job(program)
        called = f"; the workers' job is called {named}, as in the program" if named else ""
        told = f"{listed}: servers that tfdeploy starts; the program runs once, as the client chief:0{called}"
        return Served(mode.serves, told, named)
    if program.unread:
        return Served(note=f"{program.unread}: every task runs the command, so the program must serve {listed} itself")
    found = [use for use in tf_names_used.of_tensorflow(program) if use.name.removeprefix("compat.v1.") in _SERVERS]
    if found:
        return Served(note=f"{listed} run the program, which serves by itself (tf.{found[0].name}, {found[0].where})")
    return Served(mode.serves, f"{listed}: servers that tfdeploy starts, for {program.path} starts none")


def own_job(program: Program) -> str:
    """The name of the workers' job in the program where it is not "worker" (as in /job:local), else "".

    The servers must use that name, because the client places operations on devices by it.
    """
    texts = (node.value for tree in program.trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    named = {name for text in texts if isinstance(text, str) for name in _JOB.findall(text)}
    named |= {name for each in hardcoded_cluster.clusters(program) for name in each.counts}
    strange = sorted(named - set(ROLES) - {"master"})
    return strange[0] if len(strange) == 1 and "worker" not in named else ""


def argv(python: str, facts: HostFacts, served: Served) -> tuple[str, ...]:
    """`python`: the first word of the program's own command on that host."""
    own = python.rpartition("/")[2].startswith("python")
    return (python if own else str(facts.python), "-m", MODULE, *((served.job,) if served.job else ()))
