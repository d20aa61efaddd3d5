"""Forwards connections to a local port, over the open session, to a port of the host's own loopback.

Listens on 127.0.0.1 only. Two threads a connection, at most 64 connections. It ends with the session.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import paramiko

from tfdeploy.errors import Refused, TfdeployError

MOST_CONNECTIONS = 64
_BLOCK_BYTES = 1 << 16
_BROKEN = (paramiko.SSHException, OSError, EOFError)


class LoopbackTunnel:
    """`dial` opens one connection on the host; it is tried first, so that a host that cannot forward fails here."""

    def __init__(self, dial: Callable[[], paramiko.Channel], host: str, local_ports: tuple[int, ...]) -> None:
        dial().close()
        self._dial = dial
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._server = _listen(local_ports)
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name=f"tunnel-{host}", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes up accept
        self._server.close()
        with self._lock:
            self._closed = True
            still = list(self._open)
        for sock in still:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                self._free.acquire()
                threading.Thread(target=self._forward, args=(sock,), daemon=True).start()

    def _forward(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.add(sock)
            late = self._closed  # accepted just before `close`, which has not seen it
        try:
            if late:
                return
            with contextlib.suppress(TfdeployError), contextlib.closing(self._dial()) as channel:
                back = threading.Thread(target=_copy, args=(channel.recv, sock.sendall, lambda: _end(sock)), daemon=True)
                back.start()
                _copy(sock.recv, channel.sendall, channel.shutdown_write)
                back.join()
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()
            self._free.release()


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]) -> None:
    """One direction, to its end; the other one may go on."""
    with contextlib.suppress(*_BROKEN):
        while block := read(_BLOCK_BYTES):
            write(block)
    with contextlib.suppress(*_BROKEN):
        end()


def _end(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def _listen(ports: tuple[int, ...]) -> socket.socket:
    """Raises Refused where none of the ports can be had."""
    for port in ports:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port), backlog=MOST_CONNECTIONS)
    raise Refused(f"port {ports[0]} of this machine is taken", where=f"127.0.0.1:{ports[0]}", next="choose another with --port")
