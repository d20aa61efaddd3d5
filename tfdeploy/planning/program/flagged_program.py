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

    of: RoleProgram
    flags: Flags
    added: AppendedFlags
    notes: Notes

    @property
    def cluster_flags(self) -> Flags:
        """Return the flags about the cluster, both appended ones and those in the job's command."""
        return (*self.added.flags, *self.added.own)


def add_flags(
    of: RoleProgram, roles: tuple[str, ...], layout: Layout, own: OwnValues, run: str
) -> FlaggedProgram:
    """Return the program with all flags that its tasks get. Raises Refused if a flag cannot work.

    `roles`: the roles of the whole run. `own`: role -> placeholder values that use the program's
    own names for the roles.
    """
    added = appended_flags.choose_flags(of.job, of.program, roles)
    seats = [seat for seat in layout.seats if seat.role in of.roles]
    given = {
        seat.task: {
            **command_line.placeholder_values(layout, seat, of.job, run),
            **own.get(seat.role, {}),
        }
        for seat in seats
    }
    unknown_flags.refuse_undefined_flags(of.job, of.program)
    flag_conflicts.refuse_unaccepted_values(of.job, of.program, added, given)
    required = required_flags.supply_flags(
        of.job, of.program, added.known, (*added.flags, *added.own)
    )
    workers = len(layout.cluster.get("worker", ())) if "worker" in of.roles else 0
    alone = task_identity.isolation_note(of.job, of.program, added, workers) if workers else None
    notes = (added.note, alone, *required.notes, *flag_conflicts.notes(added))
    return FlaggedProgram(of, (*added.flags, *required.flags), added, tuple(filter(None, notes)))
