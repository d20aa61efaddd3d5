"""Start TCP connections before the SSH libraries are imported.

During the imports, each host's sshd starts its process for the connection. This module never waits,
and raises no error if a connection fails. `tcp.dial` takes over a started connection, and detects a
failure.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from tfdeploy.errors import ConfigError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import descriptors
from tfdeploy.transport.ssh.target import resolve

MOST = 128  # maximum number of early connections; by default, a fleet dials this many hosts at once

_lock = threading.Lock()
_started: dict[tuple[str, int], socket.socket] = {}


def start_connections(hosts: Iterable[Host]) -> None:
    """Start connections to those hosts that have an IP address and no jump host.

    Call this just before the fleet connects to the hosts.
    """
    descriptors.raise_limit()
    remaining = min(MOST, descriptors.count_free() // (2 * descriptors.PER_DIAL))
    for host in hosts:
        if remaining <= 0:
            return
        remaining -= _start_connection(host)


def take_early_connection(hostname: str, port: int) -> socket.socket | None:
    """Return the connection to this address that was started early, or None if there is none.

    The socket may be connecting or connected, or its connection may have failed. The caller must
    close it.
    """
    with _lock:
        return _started.pop((hostname, port), None)


def close_unused() -> None:
    """Close those started connections that nobody has taken."""
    with _lock:
        while _started:
            _started.popitem()[1].close()


def _start_connection(host: Host) -> bool:
    """Start a connection to one host. Return True if it was started."""
    try:
        target = resolve(host)
    except ConfigError:
        return False  # the fleet reports this error when it connects to the host
    address_key = target.hostname, target.port
    if target.jump is not None or target.proxy_command is not None:
        return False
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            *address_key, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
    except (OSError, UnicodeError):
        return False  # the address is a name, not an IP address
    with _lock:
        if address_key in _started:
            return False
        sock = socket.socket(family, kind)
        sock.setblocking(False)
        sock.connect_ex(address)
        _started[address_key] = sock
    return True
