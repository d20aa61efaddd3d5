"""The death that a run failed by: which one came first, and how it reads in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tfdeploy.agent import wire

DEATHS = frozenset({"failed", "killed", "gave_up", "lost"})  # outcomes


@dataclass(frozen=True)
class Death:
    """How one task ended that was not to end. `time`: UTC seconds of its host."""

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
    """The earliest in time. What is merely lost comes after what surely died."""
    return min(deaths, key=lambda death: (death.outcome == "lost", death.time or float("inf")), default=None)


def told(states: Iterable[wire.HostRunState]) -> list[Death]:
    """What the minders of these hosts call the cause."""
    return [_death(fields) for state in states if (fields := state.first_death) and fields.get("task")]


def of_status(status: wire.TaskStatus) -> Death:
    """Of a task whose own host says that it has ended badly."""
    outcome = status.outcome or "ended"
    return Death(status.task, status.host, outcome, status.exit_code, status.signal, status.reason, status.ended)


def _death(fields: Mapping[str, Any]) -> Death:
    """As a minder writes it: what is not known is left out."""
    known = {name: fields.get(name) for name in ("host", "exit_code", "signal", "reason", "time")}
    return Death(task=fields["task"], outcome=fields.get("outcome") or "ended", **known)
