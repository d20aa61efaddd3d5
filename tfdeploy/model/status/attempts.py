"""Collect the attempts of tasks, as their events and their hosts report them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfdeploy.model.answers.samples import AttemptRow
from tfdeploy.model.events import Event
from tfdeploy.model.row_values import copy_fields, outcome_words, short_error

# the fields of an attempt that say how it ended
_END = ("ended", "outcome", "reason", "exit_code", "signal")


@dataclass(frozen=True)
class Attempt:
    """One attempt. `started`, `ended`: UTC seconds. If `ended` and `outcome` are None, the attempt
    runs."""

    task: str
    number: int
    started: float
    ended: float | None
    outcome: str | None
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    # The last line of output of the attempt. It is recorded when the next attempt begins; until
    # then, this field is "".
    last_line: str = ""

    @property
    def describe_end(self) -> str:
        """Return how the attempt ended, such as 'failed: 1, ValueError: bad shard'; '' while it
        runs."""
        if not self.outcome:
            return ""
        how = outcome_words(self.outcome, self.exit_code, self.signal)
        reason, last = self.reason or "", short_error(self.last_line)
        return ", ".join(part for part in (how, reason, "" if last in reason else last) if part)


def attempt_of_host(task: str, row: AttemptRow) -> Attempt:
    """Convert a host's record of one attempt of `task` to an Attempt."""
    return copy_fields(Attempt, row, task=task, last_line="")


def with_inferred_end(attempt: Attempt, following: Attempt | None) -> Attempt:
    """Return the attempt. If its end was not recorded, the returned attempt ends at the start of
    `following`."""
    if attempt.ended is not None or following is None:
        return attempt
    if attempt.outcome is not None:
        return replace(attempt, ended=following.started)
    return replace(
        attempt, ended=following.started, outcome="lost", reason="how it ended is not known"
    )


def attempt_after(
    event: Event, known_attempts: Mapping[tuple[str, int], Attempt]
) -> Attempt | None:
    """Return what is known about an attempt after this event of its task; None if the event
    concerns no attempt. `known_attempts`: the attempts known so far."""
    fields = event.data
    task, number = event.task or fields.get("task") or "", fields.get("attempt") or 0
    known = known_attempts.get((task, number))
    start = fields.get("started") or (known.started if known else None)
    if not task or not number or start is None:
        return None
    end: dict[str, Any] = {name: fields.get(name) for name in _END}
    return merge_status(known, Attempt(task, number, start, **end))


def merge_status(known: Attempt | None, reported: Attempt) -> Attempt:
    """Return the known attempt, updated by the task's status.

    While a task waits to restart, its status has no outcome, and the reason in the status is the
    reason for the restart. So that reason is not used as the reason why the attempt ended.
    """
    if reported.outcome is not None:
        return reported
    if known is not None and known.outcome not in (None, "lost"):
        return known
    if reported.ended is None:
        return reported
    return replace(reported, outcome="failed" if reported.signal is None else "killed", reason=None)


def merge_recorded_attempts(
    by_key: dict[tuple[str, int], Attempt], recorded: Mapping[str, Sequence[Attempt]]
) -> list[Attempt]:
    """Add the attempts that hosts have recorded to `by_key`. `recorded`: task -> its attempts.
    `by_key`: (task, number of the attempt) -> attempt. A recorded end replaces the end that a
    status reported.

    Return the attempts whose end was not known before.
    """
    ended = []
    for task, each in ((task, each) for task, attempts in recorded.items() for each in attempts):
        key = task, each.number
        known = by_key.get(key)
        if known is None:
            by_key[key] = each
        elif each.ended is not None:
            by_key[key] = replace(each, last_line=known.last_line)
        if each.ended is not None and (known is None or known.ended is None):
            ended.append(each)
    return ended


def end_event_of(attempt: Attempt, host: str) -> Event:
    """Return the event of the attempt's end that a client would have received if it had watched the
    run when the attempt ended."""
    task, number = attempt.task, attempt.number
    data = {name: getattr(attempt, name) for name in ("started", *_END)}
    data |= {"state": "ended", "attempt": number}
    time = attempt.ended if attempt.ended is not None else attempt.started
    return Event("task", time, host=host, task=task, attempt=number, data=data)
