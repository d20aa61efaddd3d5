"""Decides which flags the tasks of a program get: flags about the cluster, and required flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfdeploy.model.plan import Notes
from tfdeploy.planning.cluster.layout import Layout
from tfdeploy.planning.flags import appended_flags, required_flags, unknown_flags
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

    @property
    def cluster_flags(self) -> Flags:
        """Return the flags about the cluster: those that tfdeploy appends to the job's command, and
        those that the command already contains."""
        return (*self.added.flags, *self.added.in_command)


def add_flags(
    role_program: RoleProgram,
    roles: tuple[str, ...],
    layout: Layout,
    renamed_values: OwnValues,
    run: str,
) -> FlaggedProgram:
    """Return the program with all flags that its tasks get. Raises Refused if a flag cannot work.

    `roles`: the roles of the whole run. `renamed_values`: role -> placeholder values that use the
    program's own names for the roles.
    """
    added = appended_flags.choose_flags(role_program.job, role_program.program, roles)
    seats = [seat for seat in layout.seats if seat.role in role_program.roles]
    given = {
        seat.task: {
            **command_line.placeholder_values(layout, seat, role_program.job, run),
            **renamed_values.get(seat.role, {}),
        }
        for seat in seats
    }
    unknown_flags.refuse_wrong_arguments(
        role_program.job, role_program.program, (*added.flags, *added.in_command)
    )
    flag_conflicts.refuse_unaccepted_values(role_program.job, role_program.program, added, given)
    required = required_flags.supply_flags(
        role_program.job,
        role_program.program,
        added.cluster_flags,
        (*added.flags, *added.in_command),
    )
    workers = len(layout.cluster.get("worker", ())) if "worker" in role_program.roles else 0
    alone = (
        task_identity.isolation_note(role_program.job, role_program.program, added, workers)
        if workers
        else None
    )
    notes = (added.note, alone, *required.notes, *flag_conflicts.notes(added))
    return FlaggedProgram(
        role_program, (*added.flags, *required.flags), added, tuple(filter(None, notes))
    )
