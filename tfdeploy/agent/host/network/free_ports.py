"""Which ports of a range are free, and which processes have the others.

A port is free when it can be bound: a socket that is bound and not listening is not listed in
/proc/net. Connections in TIME_WAIT do not count: they hinder neither the minder nor TensorFlow.
"""

from __future__ import annotations

import errno
import socket

from tfdeploy.agent.annotations import Callable, Dict, List, Optional, Tuple
from tfdeploy.agent.host.network import listening


def look_at_ports(
    low: int, high: int, held: Callable[[], Dict[int, str]]
) -> Tuple[List[int], Dict[str, str]]:
    """(free ports in order, {port: owner}) of low to high, both included. `held`: gives owners
    known by other means; called only if a port is taken."""
    free: List[int] = []
    taken: List[int] = []
    for port in range(low, high + 1):
        (free if is_free(port) else taken).append(port)
    known = {**listening.owners(taken), **held()} if taken else {}
    return free, {str(port): known.get(port, "unknown") for port in taken}


def is_free(port: int) -> bool:
    """Whether the minder could bind this port on every address of the host."""
    return all(_can_bind(family, port) for family in (socket.AF_INET, socket.AF_INET6))


def _can_bind(family: int, port: int) -> bool:
    error = _bind(family, port, None)
    if error == errno.EADDRINUSE:
        # Both succeed only where nothing but TIME_WAIT is in the way: a holder refuses the first, a
        # stranger the second, and so do connections of a server that did not set it, like the
        # mesh's: those are listed.
        return _bind(family, port, socket.SO_REUSEADDR) is None and (
            _bind(family, port, socket.SO_REUSEPORT) is None
            or any(row.port == port for row in listening.rows(listening=False))
        )
    return error in (None, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # a host without IPv6


def _bind(family: int, port: int, option: Optional[int]) -> Optional[int]:
    """The errno of a bind to all addresses of one family; None: it succeeds."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            if option is not None:
                one.setsockopt(socket.SOL_SOCKET, option, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(("", port))
    except OSError as error:
        return error.errno
    return None
