"""Holds ports.

A held port is bound and never listened on. TensorFlow binds beside the holder because both set
SO_REUSEPORT (TF_GRPC_REUSE_PORT=true); a process that does not cannot. Measured.
"""

from __future__ import annotations

import socket
import time


def claim(port: int, patience_s: float = 0.0) -> socket.socket:
    """A socket bound to `port` exclusively, to listen on. Tries for `patience_s` seconds. Raises
    OSError."""
    deadline = time.monotonic() + patience_s
    while True:
        claimed = _any_address()
        try:
            claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(claimed, port)
            # From now on: what its connections leave behind (TIME_WAIT) must not keep the next run
            # from this port.
            claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return claimed
        except OSError:
            claimed.close()
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def hold(port: int, may_be_bound: bool = False) -> socket.socket:
    """A socket that keeps `port` on all addresses, IPv4 and IPv6. Raises OSError (EADDRINUSE):
    another process has it.

    `beside`: the tasks of this run may have it already (a minder that takes over).
    """
    held = _any_address()
    try:
        if may_be_bound:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        else:
            # Alone at the moment of the bind, open to others with REUSEPORT from then on: no moment
            # in between. REUSEADDR only for that moment: it forgives connections in TIME_WAIT.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(held, port)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except BaseException:
        held.close()
        raise
    return held


def _any_address() -> socket.socket:
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return made
    except OSError:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def _bind(held: socket.socket, port: int) -> None:
    held.bind(("::" if held.family == socket.AF_INET6 else "0.0.0.0", port))
