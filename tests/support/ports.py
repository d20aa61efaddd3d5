"""Free ports for servers that a test starts later.

The kernel may give a port from `bind(..., 0)` to any connection once it is free again. The ports of
this module lie below the kernel's ephemeral ports and below those of loopback labs, and each pytest
process has its own range.
"""

from __future__ import annotations

import itertools
import os
import socket

FIRST_PORT, RANGES, PORTS_PER_RANGE = 10000, 10, 1000
_FIRST = FIRST_PORT + PORTS_PER_RANGE * (os.getpid() % RANGES)
_CANDIDATES = itertools.cycle(range(_FIRST, _FIRST + PORTS_PER_RANGE))


def free_ports(count: int) -> list[int]:
    """Return the next free ports of this process's range, in ascending order until it wraps around.

    A port is returned again only after all others of the range.
    """
    return list(itertools.islice(filter(_is_free, _CANDIDATES), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
