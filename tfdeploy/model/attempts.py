"""The attempts of tasks, as their events tell them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfdeploy.model.events import Event
from tfdeploy.model.words import outcome_words


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
        return ", ".join(part for part in (how, self.reason or "", self.last_line) if part)


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
