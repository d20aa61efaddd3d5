"""Simulate the attempts of one task (its first start and its restarts), and what its host would
report about these attempts at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfdeploy.agent import wire
from tfdeploy.model.answers.runs import RunChange
from tfdeploy.text.typed import convert_untrusted

# These names occur in support.dashboard_scenes.PLAN.
RUN, TASK, HOST = "digits-20261121-101500-3fa1", "worker:1", "n3"


@dataclass(frozen=True)
class PastAttempt:
    """One attempt. `until` is the time of its end, or None if the attempt does not end."""

    since: float
    until: float | None
    outcome: str = "killed"
    exit_code: int | None = None
    signal: int | None = 9
    reason: str | None = None


class History:
    """All attempts of the task.

    `noticed_s`: the time from the death of the task until the minder (the process that watches the
    task's host) records that the task will restart.
    """

    def __init__(self, attempts: list[PastAttempt], noticed_s: float = 0.05) -> None:
        self.attempts, self.noticed_s = attempts, noticed_s

    def status(self, now: float) -> wire.TaskStatus:
        number = bisect_right([each.since for each in self.attempts], now)
        one = self.attempts[number - 1]
        status = wire.TaskStatus(
            run=RUN,
            task=TASK,
            host=HOST,
            attempt=number,
            state="running",
            up=True,
            started=one.since,
        )
        if one.until is None or now < one.until:
            return status
        how: dict[str, Any] = {
            "outcome": one.outcome,
            "exit_code": one.exit_code,
            "signal": one.signal,
            "reason": one.reason,
        }
        ended = wire.replace(status, state="ended", ended=one.until, **how)
        if now < one.until + self.noticed_s:
            return ended
        why = (
            "starts again: "
            f"{wire.summarize_ending(one.outcome, one.exit_code, one.signal, one.reason)}"
        )
        # This is the form in which agent/serve/run/status.py reports a task that will restart.
        return wire.replace(ended, state="pending", outcome=None, up=False, reason=why)

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Return the attempts that have ended, in the form of agent/run/attempts.py."""
        over = [
            (at, each)
            for at, each in enumerate(self.attempts, 1)
            if each.until is not None and each.until <= now
        ]
        return [
            {
                "number": number,
                "started": each.since,
                "ended": each.until,
                "outcome": each.outcome,
                "exit_code": each.exit_code,
                "signal": each.signal,
                "reason": each.reason,
            }
            for number, each in over
        ]

    def changes(self, looks: Iterable[float]) -> list[RunChange]:
        """Return the items that the verb run.watch sends. The verb looks at the task at each of the
        times in `looks`.
        """
        seen, sent, collected = None, 0, []
        for now in looks:
            status, rows = self.status(now), self.rows(now)
            if status == seen:
                continue
            again = status.attempt > 1 or status.state == "pending"
            told = rows[sent:] if again else []
            seen, sent = status, len(rows) if again else sent
            collected.append(
                convert_untrusted({"task": wire.to_wire(status), "attempts": told}, RunChange)
            )
        return collected
