"""TCP connections begun before the SSH libraries are loaded: meanwhile each host's sshd starts the
process that will answer.

It waits for nothing and raises nothing: `tcp.dial` goes on with a connection from here, and finds
out whether it failed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from tfdeploy.errors import ConfigError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import descriptors
from tfdeploy.transport.ssh.target import resolve

MOST = 128  # as many as a fleet dials at once by default

_lock = threading.Lock()
_begun: dict[tuple[str, int], socket.socket] = {}


def begin(hosts: Iterable[Host]) -> None:
    """To hosts with a literal address that are reached directly. Call it just before they are
    connected to."""
    descriptors.raise_limit()
    left = min(MOST, descriptors.free() // (2 * descriptors.PER_DIAL))
    for host in hosts:
        if left <= 0:
            return
        left -= _begin(host)


def take_early_connection(hostname: str, port: int) -> socket.socket | None:
    """Connecting, connected or failed; the caller owns it."""
    with _lock:
        return _begun.pop((hostname, port), None)


def forget() -> None:
    """Closes those that nobody has taken."""
    with _lock:
        while _begun:
            _begun.popitem()[1].close()


def _begin(host: Host) -> bool:
    try:
        target = resolve(host)
    except ConfigError:
        return False  # said when it is connected to
    place = target.hostname, target.port
    if target.jump is not None or target.proxy_command is not None:
        return False
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            *place, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
    except (OSError, UnicodeError):
        return False  # a name
    with _lock:
        if place in _begun:
            return False
        sock = socket.socket(family, kind)
        sock.setblocking(False)
        sock.connect_ex(address)
        _begun[place] = sock
    return True
