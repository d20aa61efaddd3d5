"""Return free ports for servers that a test starts later.

Ports from `bind(..., 0)` are not safe: as soon as the test closes the socket, the kernel may give
the port to any connection.
The ports of this module are below the kernel's ephemeral ports and below those of loopback labs,
and each pytest process has its own range. The process keeps the first port of its range bound, so
that no other process of this or another checkout takes the same range.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
from collections.abc import Iterator

FIRST_PORT, RANGES, PORTS_PER_RANGE = 10000, 40, 250


def free_ports(count: int) -> list[int]:
    """Return the next free ports of this process's range, in ascending order until the range wraps
    around.

    A port is returned again only after all other ports of the range.
    """
    return list(itertools.islice(filter(_is_free, _candidates(os.getpid())), count))


# The argument is the process id, so that a forked child does not use its parent's cached range.
@functools.cache
def _candidates(pid: int) -> Iterator[int]:
    taken = (_take_range((pid + number) % RANGES) for number in range(RANGES))
    first = next(filter(None, taken), None)
    assert first, f"all {RANGES} ranges of test ports are taken"
    return itertools.cycle(range(first + 1, first + PORTS_PER_RANGE))


# These sockets stay open until the process ends.
_MARKERS: list[socket.socket] = []


def _take_range(number: int) -> int | None:
    """Bind the first port of a range and return it, or None if another process has it."""
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
