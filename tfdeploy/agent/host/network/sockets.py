"""Hold ports for the tasks of a run, and claim ports to listen on.

A held port is bound, but no socket of the holder listens on it. TensorFlow can bind the port too,
because both set SO_REUSEPORT (TF_GRPC_REUSE_PORT=true). A process without that option cannot. This
was measured.
"""

from __future__ import annotations

import socket
import time


def claim(port: int, patience_s: float = 0.0) -> socket.socket:
    """Return a socket bound to `port` exclusively, to listen on. Retries for `patience_s` seconds.
    Raises OSError."""
    deadline = time.monotonic() + patience_s
    while True:
        claimed = _any_address()
        try:
            claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(claimed, port)
            # Connections inherit the option from now on. Without it, those in TIME_WAIT would keep
            # the next run from this port.
            claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return claimed
        except OSError:
            claimed.close()
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def hold(port: int, may_be_bound: bool = False) -> socket.socket:
    """Return a socket that holds `port` on all addresses, IPv4 and IPv6. Raises OSError
    (EADDRINUSE) if another process has the port.

    `may_be_bound`: the tasks of this run may have bound the port already, because this minder takes
    over.
    """
    held = _any_address()
    try:
        if may_be_bound:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        else:
            # The bind without SO_REUSEPORT fails if another process has the port. The option is set
            # afterwards, for the task. SO_REUSEADDR is set only during the bind, so that
            # connections in TIME_WAIT do not make the bind fail.
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
