"""Times, deaths and stalls in words, the same wherever they are told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any


def iso_z(seconds: float | None) -> str | None:
    """UTC seconds as 2026-11-21T10:15:00Z (with milliseconds where there are any)."""
    if seconds is None:
        return None
    whole = datetime.fromtimestamp(round(seconds, 3), tz=timezone.utc)
    return whole.isoformat(timespec="milliseconds" if whole.microsecond else "seconds").replace("+00:00", "Z")


def death_in_words(task: str, host: str | None, death: Mapping[str, Any]) -> str:
    """'worker:1 on n2 failed with exit code 1: reason', from an outcome's fields."""
    outcome = death.get("outcome") or "ended"
    text = f"{task} on {host}" if host else task
    if death.get("reason"):
        text += f" {outcome.replace('_', ' ')}: {death['reason']}"
    elif outcome == "failed" and death.get("exit_code") is not None:
        text += f" failed with exit code {death['exit_code']}"
    elif outcome == "killed" and death.get("signal") is not None:
        text += f" was killed by signal {death['signal']}"
    elif outcome == "succeeded":
        text += " ended too early, with exit code 0"
    else:
        text += f" {outcome.replace('_', ' ')}"
    return text


def stall_words(reason: str | None, since: float | None, *, last_known: bool = False) -> str | None:
    """Why a task is stalled and since when. `last_known`: of a host that cannot be reached now. None: it is not."""
    if reason is None:
        return None
    when = f" (since {iso_z(round(since))})" if since is not None else ""
    return f"{'when last heard of, stalled: ' if last_known else ''}{reason}{when}"
