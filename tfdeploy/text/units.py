"""Parse and format durations, sizes and rates. The base units are seconds and bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = (
    {"B": 1}
    | {p + "B": 1000**n for n, p in enumerate("kMGT", 1)}
    | {"KB": 1000}
    | {p + "iB": 1024**n for n, p in enumerate("KMGT", 1)}
)

_DURATION_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|[smhd]|\Z)", re.ASCII)
_DURATION = re.compile(
    r"\d{1,12}(?:\.\d{1,9})?|(?:\d{1,12}(?:\.\d{1,9})?(?:ms|[smhd])){1,9}", re.ASCII
)
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)([KMG]?)\Z", re.ASCII)
_RATES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# (shortest duration that is shown in this unit, length of the unit, name of the unit), in seconds.
# Between 1 and 2 days, a duration is shown in hours: "47 h" is more precise than "1 d".
_PARTS = ((172800, 86400, "d"), (3600, 3600, "h"), (60, 60, "min"), (0, 1, "s"))
LEAST_RATE, MOST_RATE = 1 << 10, 1 << 40


def parse_duration(text: str) -> float:
    """Return a duration such as 20, 20s, 5m, 1h30m or 2d in seconds. Raises ValueError."""
    parts = _DURATION_PART.findall(text) if _DURATION.fullmatch(text) else []
    value = sum(float(number) * SECONDS[unit or "s"] for number, unit in parts)
    if not parts or value >= 1e9:
        raise ValueError(f"{text!r} is not a duration like 20s, 5m, 1h30m")
    return value


def parse_rate(text: str) -> int:
    """Return a rate such as 500K, 50M or 1.5G in bytes per second. The units are powers of 1024,
    as in rsync's --bwlimit. Raises ValueError."""
    match = _RATE.match(text)
    value = int(float(match[1]) * _RATES[match[2]]) if match else 0
    if not LEAST_RATE <= value <= MOST_RATE:
        raise ValueError(f"{text!r} is not a rate from 1K to 1024G, in bytes a second")
    return value


def parse_size(text: str) -> int:
    """Return a size such as 500, 20GB or 1.5GiB as a number of bytes. Raises ValueError."""
    number = text.rstrip("BKMGTki")
    try:
        value = float(number) * BYTES[text[len(number) :].strip() or "B"]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 <= value <= 1 << 60:
        raise ValueError(f"{text!r} is not a size like 20GB or 500MiB")
    return int(value)


def format_bytes(byte_count: float) -> str:
    """Return a size as '999 B', '1.2 MB', '12 GB', in decimal units, as for disks and networks."""
    if byte_count < 1000:
        return f"{byte_count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        byte_count /= 1000
        if byte_count < 999.5 or unit == "TB":
            break
    return f"{byte_count:.1f} {unit}" if byte_count < 9.95 else f"{byte_count:.0f} {unit}"


def format_binary_bytes(byte_count: int) -> str:
    """Return a size as '999 bytes', '1.5 MiB', '12 GiB', in powers of 1024, as for memory and file
    systems."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if byte_count >= scale:
            return f"{byte_count / scale:.1f}".removesuffix(".0") + f" {unit}"
    return f"{byte_count} bytes"


def version_numbers(version: str | None) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version: "535.104.05" -> (535, 104, 5). Return ()
    if the version begins with no number."""
    match = re.match(r"\d+(\.\d+)*", version or "", re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else ()


def format_roughly(seconds: float, *, parts: int = 1) -> str:
    """Return a duration as '42 s', '12 min', '3 h', '2 d'. `parts=2` adds the remainder in
    the next smaller unit: '3 h 12 min'."""
    whole = max(0, int(seconds))
    size, unit = next((size, unit) for least, size, unit in _PARTS if whole >= least)
    number, remainder = divmod(whole, size)
    # After days, only whole hours are shown, and after hours, only whole minutes. A remainder that
    # is smaller than that is left out.
    smallest = 3600 if unit == "d" else 60
    more = (
        f" {format_roughly(remainder)}" if parts > 1 and size > 60 and remainder >= smallest else ""
    )
    return f"{number} {unit}{more}"


def format_count(number: int, what: str) -> str:
    """Return the number with the noun `what` in the singular or plural: '1 host', '3 hosts'."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def list_first(texts: Sequence[str], max_count: int) -> str:
    """Return the first `max_count` texts and the number of the others: 'a, b and 3 more'."""
    more = f" and {len(texts) - max_count} more" if len(texts) > max_count else ""
    return ", ".join(texts[:max_count]) + more
