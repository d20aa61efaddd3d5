"""Format bytes, durations and numbers for people. The functions are pure."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from tfdeploy.text.units import format_bytes, format_count, format_roughly, list_first

if TYPE_CHECKING:
    from tfdeploy.model.progress.task_progress import CombinedTransfers

__all__ = [
    "format_bytes",
    "format_count",
    "format_duration",
    "format_number",
    "format_roughly",
    "format_transfer",
    "list_first",
]


def format_transfer(totals: CombinedTransfers, after_total: str = "") -> str:
    """Return the progress of a transfer as text: '12 MB of 60 MB, 5.0 MB/s, 9.6 s left'.
    `after_total`: a text to insert after the total number of bytes."""
    parts = [
        f"{format_bytes(totals.sent_bytes)} of {format_bytes(totals.total_bytes)}{after_total}"
    ]
    parts += [f"{format_bytes(totals.bytes_per_s)}/s"] if totals.bytes_per_s else []
    parts += (
        [f"{format_duration(totals.remaining_s)} left"] if totals.remaining_s is not None else []
    )
    return ", ".join(parts)


def format_duration(seconds: float) -> str:
    """Return a duration as text: '0.3 s', '42 s', '3:05', '2:03:05', '4 d 2 h'."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds_left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def format_number(value: float | None, digits: int = 4) -> str:
    """Return a number as text with up to `digits` significant digits: '0.3112', '12,000',
    '3.1e-07', 'nan'. For None, return ''."""
    if value is None:
        return ""
    if not isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.2e}"
    return f"{value:.{digits}g}"
