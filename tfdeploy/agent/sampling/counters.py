"""Read the usage counters of this machine from /proc. How much was used in an interval is the
difference between two readings."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import List, Optional, Tuple
from tfdeploy.agent.record import NamedTuple

_TICKS_S = float(os.sysconf("SC_CLK_TCK"))
_SECTOR = 512


class Machine(NamedTuple):
    """The counters of the whole machine. A value is None if the kernel does not report it."""

    busy_s: Optional[float]  # CPU seconds of all cores together since the boot
    memory: Optional[int]  # bytes of memory that new processes cannot use
    memory_total: Optional[int]  # bytes of memory that the machine has
    # Bytes received by the network cards; without cards, by all interfaces except loopback.
    received: Optional[int]
    sent: Optional[int]  # bytes sent, by the same interfaces
    read: Optional[int]  # bytes read from all disks
    written: Optional[int]  # bytes written to all disks


def read_machine() -> Machine:
    memory, total = _read_memory()
    received, sent = _read_network()
    read, written = _read_disks()
    return Machine(_read_busy_s(), memory, total, received, sent, read, written)


def _read_busy_s() -> Optional[float]:
    for columns in _split_lines("/proc/stat", 1):
        try:
            ticks = list(map(int, columns[1:9]))
            # Columns 3 and 4 are the time in which a core was idle, and the time in which it waited
            # for disks.
            return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_S
        except (ValueError, IndexError):
            pass
    return None


def _read_memory() -> Tuple[Optional[int], Optional[int]]:
    fields = {
        columns[0]: columns[1] for columns in _split_lines("/proc/meminfo", 8) if len(columns) > 1
    }
    try:
        total = int(fields[b"MemTotal:"]) << 10
        return total - (int(fields[b"MemAvailable:"]) << 10), total
    except (KeyError, ValueError):
        return None, None


def _read_network() -> Tuple[Optional[int], Optional[int]]:
    """Return (received, sent) bytes of the network cards. If there are no cards, return those of
    all interfaces except loopback. Other interfaces are left out because traffic over a bridge also
    passes a card, and must not be counted twice."""
    rows = {}
    for columns in _split_lines("/proc/net/dev"):
        name, _, first = columns[0].partition(b":")
        numbers = ([first] if first else []) + columns[1:]
        if name not in (b"lo", b"Inter-|", b"face") and len(numbers) >= 9 and numbers[0].isdigit():
            rows[os.fsdecode(name)] = (int(numbers[0]), int(numbers[8]))
    cards = [name for name in rows if os.path.exists("/sys/class/net/%s/device" % name)] or list(
        rows
    )
    if not cards:
        return None, None
    return sum(rows[name][0] for name in cards), sum(rows[name][1] for name in cards)


def _read_disks() -> Tuple[Optional[int], Optional[int]]:
    disks = []
    for columns in _split_lines("/proc/diskstats"):
        name = os.fsdecode(columns[2]) if len(columns) > 9 else ""
        if (
            name
            and os.path.exists("/sys/block/%s/device" % name)
            and columns[5].isdigit()
            and columns[9].isdigit()
        ):
            disks.append((int(columns[5]) * _SECTOR, int(columns[9]) * _SECTOR))
    return (
        (sum(each[0] for each in disks), sum(each[1] for each in disks)) if disks else (None, None)
    )


def _split_lines(path: str, most_lines: int = 10_000) -> List[List[bytes]]:
    """Return the columns of each line among the first `most_lines` lines of the file. Empty lines
    are left out. If the file cannot be read, return []."""
    try:
        with open(path, "rb") as file:
            return [
                columns
                for columns in (
                    line.split() for line in file.read(1 << 20).split(b"\n")[:most_lines]
                )
                if columns
            ]
    except OSError:
        return []
