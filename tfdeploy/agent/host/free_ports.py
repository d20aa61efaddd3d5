"""Which ports of a range are free, and which processes have the others.

A port is free when it can be bound: a socket that is bound and not listening is not listed in /proc/net. Connections in TIME_WAIT
do not count: they hinder neither the minder nor TensorFlow.
"""

from __future__ import annotations

import errno
import os
import socket

from tfdeploy.agent.annotations import Callable, Dict, List, Optional, Tuple

_LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def look_at_ports(low: int, high: int, held: Callable[[], Dict[int, str]]) -> Tuple[List[int], Dict[str, str]]:
    """(free ports in order, {port: owner}) of low to high, both included. `held`: gives owners known by other
    means; called only if a port is taken."""
    free: List[int] = []
    taken: List[int] = []
    for port in range(low, high + 1):
        (free if is_free(port) else taken).append(port)
    known = owners(taken) if taken else {}
    known.update(held() if taken else {})
    return free, {str(port): known.get(port, "unknown") for port in taken}


def is_free(port: int) -> bool:
    """Whether the minder could bind this port on every address of the host."""
    return all(_can_bind(family, port) for family in (socket.AF_INET, socket.AF_INET6))


def _can_bind(family: int, port: int) -> bool:
    error = _bind(family, port, None)
    if error == errno.EADDRINUSE:
        # Both succeed only where nothing but TIME_WAIT is in the way: a holder refuses the first, a stranger the second,
        # and so do connections of a server that did not set it, like the mesh's: those are listed.
        return _bind(family, port, socket.SO_REUSEADDR) is None and (
            _bind(family, port, socket.SO_REUSEPORT) is None or _had_connections(port)
        )
    return error in (None, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # a host without IPv6


def _had_connections(port: int) -> bool:
    return any(number == port for path in _TABLES for number, _, _ in _sockets(path, listening=False))


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


def owners(ports: List[int]) -> Dict[int, str]:
    """Which process listens on each port, as far as this user may see: "pid 4242: python train.py" or "user 1001"."""
    wanted = set(ports)
    sockets: Dict[str, int] = {}
    found: Dict[int, str] = {}
    for path in _TABLES:
        for port, uid, inode in _sockets(path, listening=True):
            if port in wanted:
                sockets["socket:[%s]" % inode] = port
                found[port] = "a process of user %s" % uid
    found.update(_processes(sockets) if sockets else {})
    return found


def _sockets(path: str, *, listening: bool) -> List[Tuple[int, str, str]]:
    """(port, uid, inode) of every socket that listens, or of every other one: what is only bound is not listed."""
    try:
        with open(path) as lines:
            rows = [line.split() for line in lines][1:]
    except OSError:
        return []
    wanted = [row for row in rows if len(row) > 9 and (row[3] == _LISTEN) == listening]
    return [(int(row[1].rpartition(":")[2], 16), row[7], row[9]) for row in wanted]


def _processes(sockets: Dict[str, int]) -> Dict[int, str]:
    found: Dict[int, str] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir("/proc/%s/fd" % pid):
                port = sockets.get(os.readlink("/proc/%s/fd/%s" % (pid, fd)))
                if port is not None:
                    found.setdefault(port, "pid %s: %s" % (pid, _command(pid)))
        except OSError:
            continue  # ended meanwhile, or of another user
    return found


def _command(pid: str) -> str:
    with open("/proc/%s/cmdline" % pid, "rb") as words:
        return words.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120]
