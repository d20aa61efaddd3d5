"""Find the death that made a run fail, and describe it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tfdeploy.agent import wire
from tfdeploy.model.row_values import copy_fields

# the outcomes of a task that count as a death
DEATHS = frozenset({"failed", "killed", "gave_up", "lost"})


class Death(NamedTuple):
    """The death of one task. `time`: UTC seconds by the clock of its host."""

    task: str
    host: str | None
    outcome: str
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    time: float | None = None

    @property
    def describe(self) -> str:
        """Return text such as 'worker:1 on n2 failed with exit code 1: reason'."""
        ending = wire.describe_task_death(self.outcome, self.exit_code, self.signal, self.reason)
        return f"{self.task} on {self.host} {ending}" if self.host else f"{self.task} {ending}"


def earliest_death(deaths: Iterable[Death]) -> Death | None:
    """Return the earliest death; None if there is none. A task with the outcome `lost` may not have
    died, so such a death is returned only if there is no other."""
    return min(
        deaths,
        key=lambda death: (death.outcome == "lost", death.time or float("inf")),
        default=None,
    )


def deaths_reported_by(states: Iterable[wire.HostRunState]) -> list[Death]:
    """Return the deaths that the minders (the processes that supervise the tasks) of these hosts
    report as the cause of the run's failure."""
    reports = (state.first_death for state in states)
    return [_death_from_report(fields) for fields in reports if fields and fields.get("task")]


def death_of(task: Any) -> Death:
    """Return the death of a task from its TaskStatus, TaskView or TaskProgress."""
    return copy_fields(Death, task, outcome=task.outcome or "ended", time=task.ended)


def _death_from_report(fields: Mapping[str, Any]) -> Death:
    """Return the death that a minder describes in these fields. Fields that are missing become
    None."""
    known = {name: fields.get(name) for name in ("host", "exit_code", "signal", "reason", "time")}
    return Death(task=fields["task"], outcome=fields.get("outcome") or "ended", **known)
