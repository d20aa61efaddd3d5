"""Finds the program of each role.

All roles may share one program; the program's name may contain the role ({job_name}.py); or a role
may have a command of its own: `roles: {ps: {command: ...}}`. Each program gets only the flags that
it defines itself, because ps.py would exit at a flag that only worker.py defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tfdeploy.model.job import Job, RoleRule
from tfdeploy.planning.source import source
from tfdeploy.planning.source.entry_point import Command, program_index
from tfdeploy.planning.source.source import Program
from tfdeploy.text.names import group_equal

_ROLE = "{job_name}"


@dataclass(frozen=True)
class RoleProgram:
    """A program, and the roles that run it. `job`: a copy of the job with these roles' command."""

    roles: tuple[str, ...]
    job: Job
    program: Program


def distinct_commands(job: Job) -> tuple[Command, ...]:
    """Return the job's command and the commands of its roles, without duplicates."""
    return tuple(
        dict.fromkeys((job.command, *(rule.command for rule in job.roles.values() if rule.command)))
    )


def read_programs(job: Job, sources: Mapping[str, str]) -> tuple[Program, ...]:
    """Return the parsed program of each command, in the order of `distinct_commands`."""
    return tuple(
        source.read_program(command, sources, job.cwd) for command in distinct_commands(job)
    )


def group_by_program(
    job: Job, program: Program, roles: Iterable[str], sources: Mapping[str, str]
) -> tuple[RoleProgram, ...]:
    """Return the programs of these roles. Roles with the same command share one RoleProgram.

    `program`: one Program with the files of all commands of the job.
    """
    by_command = group_equal({role: _role_command(job, role) for role in roles})
    if [command for _, command in by_command] == [job.command] and len(distinct_commands(job)) == 1:
        return (RoleProgram(tuple(roles), job, program),)
    return tuple(
        RoleProgram(
            names, replace(job, command=command), source.read_program(command, sources, job.cwd)
        )
        for names, command in by_command
    )


def _role_command(job: Job, role: str) -> Command:
    """Return the command of a role, with {job_name} in the program's file name filled in."""
    rule = job.roles.get(role, RoleRule())
    command = rule.command or job.command
    at = program_index(command)
    if at is None:
        return command
    program = command[at].replace(_ROLE, rule.called or role)
    return (*command[:at], program, *command[at + 1 :])
