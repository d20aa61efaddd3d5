"""The program of each role: one for all, `{job_name}.py`, or the role's own command (`roles: {ps:
{command: ...}}`).

Each is told of the cluster by its own flags: what only worker.py defines would end ps.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tfdeploy.model.job import Job
from tfdeploy.planning.source import source
from tfdeploy.planning.source.entry_point import program_index
from tfdeploy.planning.source.source import Program

_ROLE = "{job_name}"


@dataclass(frozen=True)
class RoleProgram:
    """`job`: with the command of these roles. `program`: what that starts."""

    roles: tuple[str, ...]
    job: Job
    program: Program


def commands(job: Job) -> tuple[tuple[str, ...], ...]:
    """The job's command, then those that roles have of their own."""
    return tuple(
        dict.fromkeys((job.command, *(rule.command for rule in job.roles.values() if rule.command)))
    )


def read(job: Job, sources: Mapping[str, str]) -> tuple[Program, ...]:
    """The programs of `commands`."""
    return tuple(source.read(command, sources, job.cwd) for command in commands(job))


def programs_of(
    job: Job, program: Program, roles: Iterable[str], sources: Mapping[str, str]
) -> tuple[RoleProgram, ...]:
    """The programs of these roles; roles with the same command share one. `program`: all that they
    run, as one."""
    by_command: dict[tuple[str, ...], list[str]] = {}
    for role in roles:
        by_command.setdefault(_command(job, role), []).append(role)
    if set(by_command) == {job.command} and len(commands(job)) == 1:
        return (RoleProgram(tuple(roles), job, program),)
    return tuple(
        RoleProgram(
            tuple(names), replace(job, command=command), source.read(command, sources, job.cwd)
        )
        for command, names in by_command.items()
    )


def _command(job: Job, role: str) -> tuple[str, ...]:
    """Where the program's file is named by the role, that name is filled in."""
    rule = job.roles.get(role)
    command = (rule.command if rule else ()) or job.command
    at = program_index(command)
    if at is None or _ROLE not in command[at]:
        return command
    return (
        *command[:at],
        command[at].replace(_ROLE, (rule.called if rule else "") or role),
        *command[at + 1 :],
    )
