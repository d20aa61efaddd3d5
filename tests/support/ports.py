"""Ports for what a test starts later: nothing else takes them meanwhile.

A port that the kernel gives for `bind(..., 0)` may be given to any connection as soon as it is free again. These lie
below the kernel's ephemeral ports and below those of loopback labs, and each pytest process has a slice of its own.
"""

from __future__ import annotations

import itertools
import os
import socket

FIRST_PORT, SLICES, SLICE = 10000, 10, 1000
_FIRST = FIRST_PORT + SLICE * (os.getpid() % SLICES)
_NEXT = itertools.cycle(range(_FIRST, _FIRST + SLICE))


def free_ports(count: int) -> list[int]:
    """Ports in ascending order, unless the slice begins anew. Each is given once per round of the slice."""
    return list(itertools.islice(filter(_is_free, _NEXT), count))


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True
