"""Decides which flags the tasks of a program get: flags about the cluster, and required flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdeploy.model.plan import Notes
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.flags import appended_flags, command_arguments
from tfdeploy.planning.flags.appended_flags import AppendedFlags
from tfdeploy.planning.flags.flag_definitions import Flags
from tfdeploy.planning.flags.role_programs import RoleProgram
from tfdeploy.planning.program import command_line, flag_conflicts, task_identity

OwnValues = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class FlaggedProgram:
    """A program, the roles that run it, and all flags that its tasks get.

    `added`: the appended flags that describe the cluster.
    """

    role_program: RoleProgram
    flags: Flags
    added: AppendedFlags
    notes: Notes


def add_flags(
    role_program: RoleProgram,
    roles: tuple[str, ...],
    layout: Layout,
    renamed_values: OwnValues,
    run: str,
) -> FlaggedProgram:
    """Return the program with all flags that its tasks get. Raises Refused if a flag cannot work.

    `roles`: the roles of the whole run. `renamed_values`: {role: placeholder values that use the
    program's own names for the roles}.
    """
    job, program = role_program.job, role_program.program
    if program.script_line is not None and program.script_line.passes_arguments:
        # The shell script passes its arguments on to the program. So the program's command is that
        # of the script's line, with these arguments.
        job = replace(job, command=program.script_line.with_arguments(job.command))
    added = appended_flags.choose_flags(job, program, roles)
    values = {
        seat.task: {
            **command_line.placeholder_values(layout, seat, job, run),
            **renamed_values.get(seat.role, {}),
        }
        for seat in layout.seats
        if seat.role in role_program.roles
    }
    flag_conflicts.refuse_unaccepted_values(job, program, added, values)
    required = command_arguments.supply_required_flags(job, program, added.given)
    workers = len(layout.cluster.get("worker", ())) if "worker" in role_program.roles else 0
    alone = task_identity.isolation_note(job, program, added, workers)
    notes = (added.note, alone, *required.notes, *flag_conflicts.notes(added))
    return FlaggedProgram(
        role_program, (*added.flags, *required.flags), added, tuple(filter(None, notes))
    )
