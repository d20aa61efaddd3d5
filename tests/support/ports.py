"""Return free ports for servers that a test starts later.

The kernel may give a port from `bind(..., 0)` to any connection once it is free again. The ports of
this module are below the kernel's ephemeral ports and below those of loopback labs, and each pytest
process has its own range. It keeps the first port of the range bound until it ends, so that no
other process of this or another checkout takes the same range.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
from collections.abc import Iterator

FIRST_PORT, RANGES, PORTS_PER_RANGE = 10000, 40, 250


def free_ports(count: int) -> list[int]:
    """Return the next free ports of this process's range, in ascending order until it wraps around.

    A port is returned again only after all others of the range.
    """
    return list(itertools.islice(filter(_is_free, _candidates(os.getpid())), count))


@functools.cache  # by process: a child that was forked takes a range of its own
def _candidates(pid: int) -> Iterator[int]:
    taken = (_take_range((pid + number) % RANGES) for number in range(RANGES))
    first = next(filter(None, taken), None)
    assert first, f"all {RANGES} ranges of test ports are taken"
    return itertools.cycle(range(first + 1, first + PORTS_PER_RANGE))


_MARKERS: list[socket.socket] = []  # never closed


def _take_range(number: int) -> int | None:
    """Return the first port of the range, now bound by this process. None if another one has it."""
    marker, port = socket.socket(), FIRST_PORT + PORTS_PER_RANGE * number
    try:
        marker.bind(("", port))
    except OSError:
        marker.close()
        return None
    _MARKERS.append(marker)
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
