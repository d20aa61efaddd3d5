"""Checks and describes which Python runs the tasks of each host.

If the job has `setup`, the tasks run with the Python of the environment that `setup` describes.
Otherwise they run with the interpreter that the inventory names.
"""

from __future__ import annotations

import posixpath

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost
from tfdeploy.model.job import Job
from tfdeploy.model.plan import HostPlan, Notes, Plan
from tfdeploy.planning.source.entry_point import chooses_python, named_interpreter
from tfdeploy.planning.source.source import Program
from tfdeploy.text.names import fold_names, group_equal


def refuse_missing_setup_python(job: Job, facts: FactsByHost, program: Program) -> None:
    """Raise Refused if a host lacks the environment of `setup`.

    Also raises Refused if the program imports TensorFlow, but the environment does not contain it.
    """
    if job.setup_requirements is None:
        return
    file = posixpath.basename(job.setup_requirements)
    missing = [name for name, each in facts.items() if each.python and each.environment is None]
    if missing:
        raise Refused(
            f"no environment on {fold_names(missing)} for the present content of {file}",
            where=f"host {', '.join(missing)}",
            next="`tfdeploy setup`",
        )
    without = [name for name, each in facts.items() if each.environment and each.tensorflow is None]
    if program.imports_tensorflow and without:
        raise Refused(
            f"{program.path} imports TensorFlow, but the environment of {file} lacks it on "
            f"{fold_names(without)}",
            where=f"host {', '.join(without)}",
            next=f"write `tensorflow` into {file}, then run `tfdeploy setup`",
        )


def notes(job: Job, facts: FactsByHost) -> Notes:
    """Return notes on the Python of each host, if the job has `setup`.

    Hosts on which Python has the same path and version share one note.
    """
    if job.setup_requirements is None:
        return ()
    file = posixpath.basename(job.setup_requirements)
    same = group_equal(
        {name: (host_facts.python, host_facts.python_version) for name, host_facts in facts.items()}
    )
    return tuple(
        f"python on {fold_names(names)}: {python}, Python {version}, the environment of {file}"
        for names, (python, version) in same
    )


def python_summary(plan: Plan) -> str:
    """Return a text that says which Python runs on which hosts, and why."""
    if chooses_python(plan.command):
        return f"chosen by {plan.command[0]} on each host"
    named = named_interpreter(plan.command) and "the command names it"
    same = group_equal(
        {host.host: (host.python, named or _python_origin(host)) for host in plan.hosts}
    )
    return ", ".join(f"{python} on {fold_names(names)} ({why})" for names, (python, why) in same)


def _python_origin(host: HostPlan) -> str:
    if host.python.startswith(posixpath.join(host.workdir, ".envs", "")):
        return "made by `tfdeploy setup`"
    python = host.ssh.get("python")
    return f"`python: {python}` of the inventory" if python else "the default"
