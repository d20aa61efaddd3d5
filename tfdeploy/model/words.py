"""Times, outcomes and stalls in words, the same in every view."""

from __future__ import annotations

from datetime import datetime, timezone


def iso_z(seconds: float | None) -> str | None:
    """UTC seconds as 2026-11-21T10:15:00Z (with milliseconds where there are any)."""
    if seconds is None:
        return None
    whole = datetime.fromtimestamp(round(seconds, 3), tz=timezone.utc)
    return whole.isoformat(timespec="milliseconds" if whole.microsecond else "seconds").replace("+00:00", "Z")


def outcome_words(outcome: str, exit_code: int | None, signal: int | None) -> str:
    """For a cell of a table: 'succeeded', 'failed: 1', 'killed: 9'."""
    if outcome == "failed" and exit_code is not None:
        return f"failed: {exit_code}"
    if outcome == "killed" and signal is not None:
        return f"killed: {signal}"
    return outcome.replace("_", " ")


def stall_words(reason: str | None, since: float | None, *, last_known: bool = False) -> str | None:
    """Why a task is stalled and since when (UTC seconds). `last_known`: its host cannot be reached now. None: not stalled."""
    if reason is None:
        return None
    when = f" (since {iso_z(round(since))})" if since is not None else ""
    return f"{'when last heard of, stalled: ' if last_known else ''}{reason}{when}"
