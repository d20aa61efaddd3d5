"""Parse points in time on a command line: a duration before now, or a time of RFC 3339."""

from __future__ import annotations

import re
import time
from datetime import datetime

from tfdeploy.model.text.units import parse_duration

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d)?(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?)?", re.ASCII
)
EXAMPLES = "1h30m, 2026-11-22T10:00:00Z or 2026-11-22"


def parse_moment(text: str, now: float | None = None) -> float:
    """Return the point in time in UTC seconds. `now`: the clock's time by default.

    A time without an offset is local; a date alone is midnight, local time. Raises ValueError.
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
