"""Bytes, durations and figures as people read them. Pure."""

from __future__ import annotations

from tfdeploy.model.units import in_bytes

__all__ = ["count", "figure", "in_bytes", "in_seconds", "roughly"]
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_FROM_TWO = 2  # of a unit: 47 h is more telling than 1 d


def in_seconds(seconds: float) -> str:
    """'0.3 s', '42 s', '3:05', '2:03:05', '4 d 2 h'."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def roughly(seconds: float, *, parts: int = 1) -> str:
    """'42 s', '12 min', '3 h', '2 d'; with `parts=2` also what is left of it in the next unit: '3 h 12 min'."""
    whole = max(0, int(seconds))
    size, unit = next((each for each in _UNITS if whole >= each[0] * (_FROM_TWO if each[1] == "d" else 1)), _UNITS[-1])
    rest = whole % size
    more = f" {roughly(rest)}" if parts > 1 and size > 60 and rest >= size // (24 if unit == "d" else 60) else ""
    return f"{whole // size} {unit}{more}"


def figure(value: float | None, digits: int = 4) -> str:
    """Up to `digits` significant ones: '0.3112', '1,200', '3.1e-07'; '' for None."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.2e}"
    return f"{value:.{digits}g}"


def count(number: int, what: str) -> str:
    """'1 host', '3 hosts'."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
