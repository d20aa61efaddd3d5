"""Decides which tasks run a TensorFlow server of tfdeploy instead of the user's program.

Such tasks are needed if the program is only the client or the chief, and starts no servers itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from tfdeploy.model.facts import HostFacts
from tfdeploy.model.job import Job
from tfdeploy.model.modes import ROLES, ModeRules, rules_of
from tfdeploy.planning.flags import flags
from tfdeploy.planning.program import hardcoded_cluster
from tfdeploy.planning.source.entry_point import Command
from tfdeploy.planning.source.expressions import argument, last_name, literal_text
from tfdeploy.planning.source.parsed_file import place_of
from tfdeploy.planning.source.reached import certainly_reached
from tfdeploy.planning.source.source import Program
from tfdeploy.planning.versions import tf_names_used

# `python -m MODULE` starts the server. The module is in tfdeploy/runtime/site, which is on the
# PYTHONPATH of every task.
MODULE = "tfdeploy_server"
_SERVERS = ("distribute.Server", "train.Server")
_JOB = re.compile(r"/job:([A-Za-z]\w*)")


@dataclass(frozen=True)
class ServerRoles:
    """The roles whose tasks run a TensorFlow server instead of the program. `note` gives the
    reason.

    `worker_job`: the program's own name for the job of the workers; "" if it has none.
    """

    roles: Collection[str] = ()
    note: str | None = None
    worker_job: str = ""


def decide_server_roles(job: Job, program: Program, roles: Collection[str]) -> ServerRoles:
    """Return the roles whose tasks run a server of tfdeploy.

    In mode ingraph, these are all roles of the mode that need a server. The same is true of mode
    coordinator, unless the program itself starts the servers. `roles`: the roles that have tasks.
    """
    mode = rules_of(job.mode)
    if mode.lead_role is None:
        return ServerRoles()
    listed = " and ".join(
        role for role in mode.usable_roles if role in mode.serving_roles and role in roles
    )
    if "one_client" in mode.traits:
        named = job.roles["worker"].called if "worker" in job.roles else worker_job_name(program)
        note = (
            f"tfdeploy starts the servers of {listed}; the program runs once, as the client chief:0"
        )
        if named:
            note += f"; the workers' job is called {named}, as in the program"
        if "chief" in roles:
            note += f"; the program's own server has the job name {client_job_name(program)}"
        return ServerRoles(mode.serving_roles, note + _task_index_note(program), named)
    if program.unread_reason:
        must = f"every task runs the command, so the program must serve {listed} itself"
        return ServerRoles(note=f"{program.unread_reason}: {must}")
    for use in tf_names_used.tensorflow_uses(program):
        if use.bare_name in _SERVERS:
            why = f"which starts its own servers (tf.{use.name}, {use.where})"
            return ServerRoles(note=f"{listed} run the program, {why}")
    return ServerRoles(
        mode.serving_roles,
        f"tfdeploy starts the servers of {listed}, because {program.path} starts none",
    )


def worker_job_name(program: Program) -> str:
    """Return the program's own name for the job of the workers, such as "local" in /job:local.

    Returns "" if the program uses the name "worker". The servers must use the program's name,
    because the client places operations on devices by job name.
    """
    named = _job_names_in_program(program)
    strange = named - {*ROLES, "master", client_job_name(program)}
    return strange.pop() if len(strange) == 1 and "worker" not in named else ""


def client_job_name(program: Program) -> str:
    """Return the job name of the server that an in-graph client itself starts.

    An example is "host" in `Server(cluster, job_name="host", task_index=0)`. The job has a single
    task and is neither ps nor worker. The other servers must know the address of this server,
    because some operations may run on it. Returns "" if the client starts no server.
    """
    jobs = {
        literal_text(argument(call, "job_name", 1)) or ""
        for call in program.find(ast.Call)
        if last_name(call.func) == "Server"
    }
    several = {
        job
        for each in hardcoded_cluster.literal_clusters(program)
        for job, count in each.count_by_job.items()
        if count > 1
    }
    alone = jobs - {"", "ps", "worker"} - several
    return (
        alone.pop() if len(alone) == 1 and _job_names_in_program(program) - {"ps", *alone} else ""
    )


def only_server_job(program: Program) -> tuple[str, str]:
    """Return (job name, "ps.py:12") if every run starts all servers and they have this job name.

    Returns ("", "") if the program starts no server, or if a job name is not literal. The result is
    the same if a server may be left out, as after `if job_name == "ps":`: other tasks may need no
    server, or tf.estimator may start it.
    """
    calls = [call for call in program.find(ast.Call) if last_name(call.func) == "Server"]
    certain = certainly_reached(program, has_workers=False).nodes
    jobs = {literal_text(argument(call, "job_name", 1)) for call in calls if id(call) in certain}
    job = jobs.pop() if len(jobs) == 1 and all(id(call) in certain for call in calls) else None
    return (job, place_of(calls[0])) if job else ("", "")


def _job_names_in_program(program: Program) -> set[str]:
    """Return the job names that occur in the program's devices (`/job:local`) or its clusters."""
    named = {
        name
        for node in program.find(ast.Constant)
        for name in _JOB.findall(literal_text(node) or "")
    }
    return named | {
        name for each in hardcoded_cluster.literal_clusters(program) for name in each.count_by_job
    }


def mode_rules(job: Job, program: Program) -> ModeRules:
    """Return the rules of the job's mode.

    If an in-graph client starts a server of its own, the rules are changed so that the client gets
    a port.
    """
    mode = rules_of(job.mode)
    if "one_client" not in mode.traits or not client_job_name(program):
        return mode
    return replace(
        mode, portless_roles=tuple(role for role in mode.portless_roles if role != mode.lead_role)
    )


def _task_index_note(program: Program) -> str:
    """Return a note if the in-graph client has a flag for the task index, else "".

    A program with such a flag may expect to be started once for each worker.
    """
    for flag in flags.cluster_flags(program).flags:
        if flag.name == "task_index":
            what = f"flag {flag.spelling}" if flag.spelling else f"argument {flag.dest}"
            return (
                f". The program has the {what} ({flag.where}), so it may expect to "
                "be started once for each worker, but tfdeploy starts it only once"
            )
    return ""


def server_command(python: str, facts: HostFacts, served: ServerRoles) -> Command:
    """Return the command that starts a server of tfdeploy.

    `python`: the first word of the program's command. If this is not a Python interpreter, the
    interpreter of the host is used.
    """
    own = python.rpartition("/")[2].startswith("python")
    words = (python if own else str(facts.python), "-m", MODULE, served.worker_job)
    return words if served.worker_job else words[:-1]
