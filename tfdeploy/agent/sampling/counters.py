"""Read the usage counters of this machine from /proc. They count from the boot on, so the
difference between two readings is the usage in the time between them."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Iterator, List, Optional, Tuple
from tfdeploy.agent.host.atomic import read_start
from tfdeploy.agent.record import NamedTuple

_TICKS_S = float(os.sysconf("SC_CLK_TCK"))
_SECTOR = 512


class MachineCounters(NamedTuple):
    """The counters of the whole machine. A value is None if the kernel does not report it."""

    busy_s: Optional[float]  # CPU seconds used since the boot, of all cores together
    memory: Optional[int]  # bytes of memory that new processes cannot use
    memory_total: Optional[int]  # bytes of memory that the machine has
    # Bytes received by the network cards. On a machine without cards: by all interfaces except
    # loopback.
    received: Optional[int]
    # Bytes sent by the network cards. On a machine without cards: by all interfaces except
    # loopback.
    sent: Optional[int]
    read: Optional[int]  # bytes read from all disks
    written: Optional[int]  # bytes written to all disks


def read_machine_counters() -> MachineCounters:
    memory, total = _read_memory()
    received, sent = _read_network()
    read, written = _read_disks()
    return MachineCounters(_read_busy_s(), memory, total, received, sent, read, written)


def _read_busy_s() -> Optional[float]:
    for columns in _split_lines("/proc/stat"):
        try:
            ticks = list(map(int, columns[1:9]))
            # A core is idle in the time of column 3, and waits for disks in that of column 4.
            # Neither counts as busy.
            return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_S
        except (ValueError, IndexError):
            break
    return None


def _read_memory() -> Tuple[Optional[int], Optional[int]]:
    fields = {columns[0]: columns[1] for columns in _split_lines("/proc/meminfo", 2)}
    try:
        total = int(fields[b"MemTotal:"]) << 10
        return total - (int(fields[b"MemAvailable:"]) << 10), total
    except (KeyError, ValueError):
        return None, None


def _read_network() -> Tuple[Optional[int], Optional[int]]:
    """Return (received, sent) bytes of the network cards, or of all interfaces except loopback if
    there are no cards. Other interfaces, such as bridges, are left out if there are cards: their
    traffic also passes a card and would be counted twice."""
    rows = {}
    for columns in _split_lines("/proc/net/dev"):
        name, _, first = columns[0].partition(b":")
        numbers = ([first] if first else []) + columns[1:]
        if name not in (b"lo", b"Inter-|", b"face") and len(numbers) >= 9 and numbers[0].isdigit():
            rows[os.fsdecode(name)] = (int(numbers[0]), int(numbers[8]))
    cards = [row for name, row in rows.items() if os.path.exists("/sys/class/net/%s/device" % name)]
    return _sum_rows(cards or list(rows.values()))


def _read_disks() -> Tuple[Optional[int], Optional[int]]:
    rows = []
    for columns in _split_lines("/proc/diskstats", 10):
        if (
            os.path.exists("/sys/block/%s/device" % os.fsdecode(columns[2]))
            and columns[5].isdigit()
            and columns[9].isdigit()
        ):
            rows.append((int(columns[5]) * _SECTOR, int(columns[9]) * _SECTOR))
    return _sum_rows(rows)


def _sum_rows(rows: List[Tuple[int, int]]) -> Tuple[Optional[int], Optional[int]]:
    if not rows:
        return None, None
    first, second = zip(*rows)  # noqa: B905 - Python 3.8 knows no strict
    return sum(first), sum(second)


def _split_lines(path: str, least_columns: int = 1) -> Iterator[List[bytes]]:
    """Yield the columns of each line of the file that has at least `least_columns` columns. Yield
    nothing if the file cannot be read."""
    for line in read_start(path, 1 << 20).split(b"\n"):
        columns = line.split()
        if len(columns) >= least_columns:
            yield columns
