"""Find the free ports in a range, and the processes that use the other ports.

A port is free if it can be bound. Reading /proc/net is not enough, because it does not list sockets
that are bound but do not listen. A port with connections in TIME_WAIT is free, because the minder
and TensorFlow can bind it. A program that does not set SO_REUSEADDR cannot, so such ports come
last.
"""

from __future__ import annotations

import errno
import socket

from tfdeploy.agent.annotations import Dict, List, Mapping, Optional, Tuple
from tfdeploy.agent.host.network import listening


def scan_ports(low: int, high: int, planned: Mapping[int, str]) -> Tuple[List[int], Dict[str, str]]:
    """Return the free ports, and {port: owner} for the taken ports. The free ports are in ascending
    order, but those with connections in TIME_WAIT come last.

    The range is `low` to `high`, both included. `planned`: {port: owner} of the live runs. Such a
    port is taken even if nothing uses it now, because a task binds it after the minder has closed
    it, and again after a restart.
    """
    free: List[int] = []
    waiting: List[int] = []
    taken: List[int] = []
    for port in range(low, high + 1):
        if port in planned or not is_free(port):
            taken.append(port)
        else:
            (free if _try_bind(socket.AF_INET, port, None) is None else waiting).append(port)
    owners = {**listening.describe_owners(taken), **planned} if taken else {}
    return free + waiting, {str(port): owners.get(port, "unknown") for port in taken}


def is_free(port: int) -> bool:
    """Return True if the minder can bind this port on every address of the host."""
    return all(_can_bind(family, port) for family in (socket.AF_INET, socket.AF_INET6))


def _can_bind(family: int, port: int) -> bool:
    error = _try_bind(family, port, None)
    if error == errno.EADDRINUSE:
        # Connections in TIME_WAIT also make the bind fail, but a port that only they use counts as
        # free. Two more binds show whether a process uses the port. The bind with SO_REUSEADDR
        # fails if any process uses the port. The bind with SO_REUSEPORT fails if another user's
        # process uses the port. It also fails if a server without SO_REUSEPORT has left connections
        # in TIME_WAIT; in this case /proc/net lists these connections, and the port counts as free.
        return _try_bind(family, port, socket.SO_REUSEADDR) is None and (
            _try_bind(family, port, socket.SO_REUSEPORT) is None
            or any(row.port == port for row in listening.read_rows(is_listening=False))
        )
    # A host without IPv6 returns EAFNOSUPPORT or EADDRNOTAVAIL.
    return error in (None, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def _try_bind(family: int, port: int, option: Optional[int]) -> Optional[int]:
    """Bind a socket to all addresses of one family. Return the errno, or None if this succeeds."""
    try:
        with socket.socket(family) as tried:
            if option is not None:
                tried.setsockopt(socket.SOL_SOCKET, option, 1)
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind(("", port))
    except OSError as error:
        return error.errno
    return None
