"""Write times, outcomes and stalls as text, so that every view and --json show the same text.

This module also reads the times of a command line: a duration before now, or a time of RFC 3339.
It also builds rows and other records from objects that have attributes of the same names. IsoTime,
Outcome and similar types are plain strings in Python. A JSON Schema also shows their format or
their allowed values.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta

from tfdeploy.agent.wire import OUTCOMES, RUN_STATES, TASK_STATES
from tfdeploy.text.units import parse_duration

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
    """Return the error without the module of its class, so that it fits in a row. For
    example, 'errors.python.ValueError: no' becomes 'ValueError: no'."""
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

    `since`, `now`: UTC seconds. If `now` is given, the text says for how long the task is stalled,
    and not since when. `last_known`: True if the task's host cannot be reached now, so that the
    reason may be outdated.
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


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d)?(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?)?", re.ASCII
)
EXAMPLES = "1h30m, 2026-11-22T10:00:00Z or 2026-11-22"


def parse_moment(text: str, now: float | None = None) -> float:
    """Return the point in time in UTC seconds. `now`: the clock's time by default.

    `text`: a duration, which means so long before `now`; or a date, with or without a time. A time
    without an offset is local time. A date without a time means midnight, local time. Raises
    ValueError.
    """
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            return (time.time() if now is None else now) - parse_duration(text)
        date, minutes, seconds, fraction, zone = match.groups()
        offset = {None: "", "Z": "+00:00", "z": "+00:00"}.get(zone, zone)
        moment = datetime.fromisoformat(f"{date}T{minutes or '00:00'}{seconds or ':00'}{offset}")
        return moment.timestamp() + float(fraction or 0)
    # OverflowError and OSError are raised if the local clock cannot represent the year.
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is neither a duration nor a time like {EXAMPLES}") from None


# A time as `iso_z` returns it: RFC 3339, in UTC.
IsoTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
RunState = Annotated[str, Meta(extra_json_schema={"enum": list(RUN_STATES)})]
TaskState = Annotated[str, Meta(extra_json_schema={"enum": list(TASK_STATES)})]
Outcome = Annotated[str, Meta(extra_json_schema={"enum": list(OUTCOMES)})]
Health = Annotated[str, Meta(extra_json_schema={"enum": ["unreachable", "stalled"]})]


V = TypeVar("V")


def copy_fields(record_type: type[V], copied_from: object = None, **overrides: Any) -> V:
    """Return an instance of `record_type`, a TypedDict or a dataclass. The order of its fields is
    that of the type, but `error` comes last.

    A field that is not in `overrides` is copied from `copied_from`. If `copied_from` is None, such
    a field becomes None.
    """
    names = sorted(record_type.__annotations__, key="error".__eq__)
    others = [name for name in names if name not in overrides]
    copied = {name: None if copied_from is None else getattr(copied_from, name) for name in others}
    make = cast("Callable[..., V]", record_type)
    return make(**{name: {**copied, **overrides}[name] for name in names})
