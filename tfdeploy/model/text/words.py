"""Write times, outcomes and stalls as text, identically in every view."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone

_MODULE = re.compile(r"\A(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*(?::|\Z))")


def iso_z(seconds: float | None) -> str | None:
    """Return UTC seconds as 2026-11-21T10:15:00Z, with milliseconds if there are any. If `seconds`
    is None, return None."""
    if seconds is None:
        return None
    whole = datetime.fromtimestamp(round(seconds, 3), tz=timezone.utc)
    return whole.isoformat(timespec="milliseconds" if whole.microsecond else "seconds").replace(
        "+00:00", "Z"
    )


def run_seconds(started: float | None, ended: float | None, now: float) -> float:
    """Return the seconds from a run's launch to its end, or to `now` if it has not ended. All
    arguments are UTC seconds."""
    return 0.0 if started is None else max(0.0, (now if ended is None else ended) - started)


def outcome_words(outcome: str, exit_code: int | None, signal: int | None) -> str:
    """Return the outcome as text for a table cell: 'succeeded', 'failed: 1', 'killed: 9'."""
    if outcome == "failed" and exit_code is not None:
        return f"failed: {exit_code}"
    if outcome == "killed" and signal is not None:
        return f"killed: {signal}"
    return outcome.replace("_", " ")


def short_error(text: str) -> str:
    """Return the error without the module of its class, so that it fits in a row: 'ValueError: no'
    for 'errors.python.ValueError: no'."""
    return _MODULE.sub("", text)


def unread_metrics_text(metrics: Iterable[str]) -> str:
    """Return text that says why these metrics of a task have no new values."""
    return (
        f"no new values of {', '.join(metrics)}: the regular expression takes too long for the "
        "task's lines"
    )


def stall_words(
    reason: str | None, since: float | None, *, last_known: bool = False, now: float | None = None
) -> str | None:
    """Return why a task is stalled and since when; None if it is not stalled.

    `since`, `now`: UTC seconds. With `now`, the text says for how long instead of since when.
    `last_known`: True if the task's host cannot be reached now, so that the reason may be outdated.
    """
    if reason is None:
        return None
    when = ""
    if since is not None:
        lasted = (
            f"since {iso_z(round(since))}" if now is None else f"for {_format_lasted(now - since)}"
        )
        when = f" ({lasted})"
    return f"{'when last heard of, stalled: ' if last_known else ''}{reason}{when}"


def _format_lasted(seconds: float) -> str:
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
