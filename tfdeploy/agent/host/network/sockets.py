"""Hold ports for the tasks of a run, and claim ports to listen on.

To hold a port, a socket is bound to it but does not listen. TensorFlow can bind the same port,
because both sockets set SO_REUSEPORT (TF_GRPC_REUSE_PORT=true). Tests have shown that a process
that does not set this option cannot bind the port.
"""

from __future__ import annotations

import socket
import struct
import time


def bind_exclusively(port: int, patience_s: float = 0.0) -> socket.socket:
    """Return a socket that is bound to `port` exclusively, so that the caller can listen on it. If
    the port is taken, retry for `patience_s` seconds. Raises OSError."""
    deadline = time.monotonic() + patience_s
    while True:
        claimed = _make_socket()
        try:
            _set_option(claimed, socket.SO_REUSEADDR)
            _bind_all_addresses(claimed, port)
            # The connections that this socket accepts inherit SO_REUSEPORT. Without this option,
            # the next run could not use the port while some of them are in TIME_WAIT.
            _set_option(claimed, socket.SO_REUSEPORT)
            return claimed
        except OSError:
            claimed.close()
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def hold_port(port: int, may_be_bound: bool = False) -> socket.socket:
    """Return a socket that holds `port` on all addresses, IPv4 and IPv6. Raises OSError
    (EADDRINUSE) if another process has the port.

    `may_be_bound`: True if tasks of this run may have bound the port already, because an earlier
    minder has started them.
    """
    held = _make_socket()
    try:
        if may_be_bound:
            _set_option(held, socket.SO_REUSEPORT)
        else:
            # First bind without SO_REUSEPORT, so that the bind fails if another process uses the
            # port. Then set SO_REUSEPORT, so that the task can bind the port too. SO_REUSEADDR is
            # set only during the bind, so that connections in TIME_WAIT do not make the bind fail.
            _set_option(held, socket.SO_REUSEADDR)
        _bind_all_addresses(held, port)
        _set_option(held, socket.SO_REUSEPORT)
        _set_option(held, socket.SO_REUSEADDR, False)
    except BaseException:
        held.close()
        raise
    return held


def reset_on_close(connection: socket.socket) -> None:
    """Configure the connection to send a reset when it is closed, so that it is in TIME_WAIT on
    neither side."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _set_option(held: socket.socket, option: int, is_on: bool = True) -> None:
    held.setsockopt(socket.SOL_SOCKET, option, is_on)


def _make_socket() -> socket.socket:
    try:
        dual_stack = socket.socket(socket.AF_INET6)
        dual_stack.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return dual_stack
    except OSError:
        return socket.socket()


def _bind_all_addresses(held: socket.socket, port: int) -> None:
    held.bind(("::" if held.family == socket.AF_INET6 else "0.0.0.0", port))
