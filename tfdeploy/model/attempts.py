"""The attempts of tasks, as their events tell them and as their hosts do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdeploy.model.answers.samples import AttemptRow
from tfdeploy.model.events import Event
from tfdeploy.model.words import outcome_words, short_error


@dataclass(frozen=True)
class Attempt:
    """`start`, `end`: UTC seconds. `end` None: it goes on. `outcome` None too."""

    task: str
    number: int
    start: float
    end: float | None
    outcome: str | None
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    last_line: str = ""  # known once the next attempt has begun

    @property
    def words(self) -> str:
        """How it ended: 'failed: 1, ValueError: bad shard'; '' while it goes on."""
        if not self.outcome:
            return ""
        how = outcome_words(self.outcome, self.exit_code, self.signal)
        return ", ".join(part for part in (how, self.reason or "", short_error(self.last_line)) if part)


def attempt_of_host(task: str, row: AttemptRow) -> Attempt:
    """What a host has written of it."""
    return Attempt(task, row.number, row.started, row.ended, row.outcome, row.reason, row.exit_code, row.signal)


def closed(attempt: Attempt, following: Attempt | None) -> Attempt:
    """One whose end nobody has written ended when the next one began, at the latest."""
    if attempt.end is not None or following is None:
        return attempt
    return replace(attempt, end=following.start, outcome="lost", reason="how it ended is not known")


def attempt_of(event: Event, before: Mapping[tuple[str, int], Attempt]) -> Attempt | None:
    """What a task's event tells of an attempt; `before`: what was known. None: nothing."""
    said = event.data
    task, number = event.task or said.get("task") or "", said.get("attempt") or 0
    known = before.get((task, number))
    start = said.get("started") or (known.start if known else None)
    if not task or not number or start is None:
        return None
    if said.get("state") == "pending" and known is not None and known.end is not None:
        return known  # it waits for its next attempt
    ended, outcome = said.get("ended"), said.get("outcome")
    return Attempt(task, number, start, ended, outcome, said.get("reason"), said.get("exit_code"), said.get("signal"))


def event_of(attempt: Attempt, host: str) -> Event:
    """Its end, as whoever watched would have been told."""
    told = {"state": "ended", "attempt": attempt.number, "outcome": attempt.outcome, "exit_code": attempt.exit_code}
    told |= {"signal": attempt.signal, "reason": attempt.reason, "started": attempt.start, "ended": attempt.end}
    time = attempt.end if attempt.end is not None else attempt.start
    return Event(kind="task", time=time, host=host, task=attempt.task, attempt=attempt.number, data=told)
