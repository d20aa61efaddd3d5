"""The death that made a run fail: which one came first, and its text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.agent import wire

if TYPE_CHECKING:
    from tfdeploy.model.task_progress import TaskProgress
    from tfdeploy.model.taskview import TaskView

DEATHS = frozenset({"failed", "killed", "gave_up", "lost"})  # outcomes


@dataclass(frozen=True)
class Death:
    """A bad end of one task. `time`: UTC seconds of its host."""

    task: str
    host: str | None
    outcome: str
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    time: float | None = None

    @property
    def words(self) -> str:
        """'worker:1 on n2 failed with exit code 1: reason'."""
        ending = wire.ending_in_words(self.outcome, self.exit_code, self.signal, self.reason)
        return f"{self.task} on {self.host} {ending}" if self.host else f"{self.task} {ending}"


def first(deaths: Iterable[Death]) -> Death | None:
    """The earliest in time. `lost` comes after every other outcome, because it is not certain."""
    return min(deaths, key=lambda death: (death.outcome == "lost", death.time or float("inf")), default=None)


def reported(states: Iterable[wire.HostRunState]) -> list[Death]:
    """The deaths that the minders of these hosts report as the cause."""
    return [_death(fields) for state in states if (fields := state.first_death) and fields.get("task")]


def death_of(task: wire.TaskStatus | TaskView | TaskProgress) -> Death:
    """The death of a task that ended badly."""
    outcome = task.outcome or "ended"
    return Death(task.task, task.host, outcome, task.exit_code, task.signal, task.reason, task.ended)


def _death(fields: Mapping[str, Any]) -> Death:
    """From a minder's fields, of which unknown ones are missing."""
    known = {name: fields.get(name) for name in ("host", "exit_code", "signal", "reason", "time")}
    return Death(task=fields["task"], outcome=fields.get("outcome") or "ended", **known)
