"""Forward connections from a local port, over the SSH session, to a port of the host's loopback.

The local port is on 127.0.0.1, where any user of this machine may connect. Each connection needs
two threads. At most 64 connections are open: if another one is opened, the connection that has been
silent for longest is ended. The tunnel ends with the session.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import paramiko

from tfdeploy.errors import Refused, TfdeployError
from tfdeploy.machine.threads import start_thread
from tfdeploy.transport.ssh.channel_reader import BROKEN

MOST_CONNECTIONS = 64
_BLOCK_BYTES = 1 << 16  # one read returns at most this many bytes


class _Connection:
    """One connection to the local port, and the SSH channel that carries it to the host."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.channel: paramiko.Channel | None = None
        self.received_at = time.monotonic()

    def end(self) -> None:
        """Wake up both threads, which then close the connection."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self.channel is not None:
            with contextlib.suppress(*BROKEN):
                self.channel.close()

    def forward(self, dial: Callable[[], paramiko.Channel]) -> None:
        """Copy bytes in both directions until both have ended."""
        # All errors are ignored. The channel's `close` also raises one if the session is lost.
        with contextlib.suppress(TfdeployError, *BROKEN), contextlib.closing(dial()) as channel:
            self.channel = channel
            thread = start_thread(
                self._copy,
                channel.recv,
                self.sock.sendall,
                lambda: self.sock.shutdown(socket.SHUT_WR),
            )
            self._copy(self.sock.recv, channel.sendall, channel.shutdown_write)
            thread.join()

    def _copy(
        self,
        read: Callable[[int], bytes],
        write: Callable[[bytes], object],
        shut_down: Callable[[], object],
    ) -> None:
        """Copy bytes in one direction until the sender ends. The other direction may continue."""
        with contextlib.suppress(*BROKEN):
            while block := read(_BLOCK_BYTES):
                self.received_at = time.monotonic()
                write(block)
        with contextlib.suppress(*BROKEN):
            shut_down()


class LoopbackTunnel:
    """An implementation of protocols.Tunnel. `dial`: opens one connection on the host.

    The constructor calls `dial` once, so that it raises an error if the host cannot forward.
    """

    def __init__(
        self,
        dial: Callable[[], paramiko.Channel],
        host: str,
        local_ports: tuple[int, ...],
    ) -> None:
        dial().close()
        self._dial = dial
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._closed = False
        self._server = _listen_on_free_port(local_ports)
        self.port = int(self._server.getsockname()[1])
        start_thread(self._accept, name=f"tunnel-{host}")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes up the thread in `accept`
        self._server.close()
        with self._lock:
            self._closed = True
            remaining = list(self._open)
        for connection in remaining:
            connection.end()

    def _accept(self) -> None:
        """Accept connections until the tunnel is closed."""
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                if not self._free.acquire(blocking=False):
                    self._end_most_silent()
                    self._free.acquire()
                connection = _Connection(sock)
                with self._lock:
                    self._open.add(connection)
                start_thread(self._forward, connection)

    def _end_most_silent(self) -> None:
        """End the connection that has received no byte for the longest time."""
        with self._lock:
            silent = min(self._open, key=lambda each: each.received_at, default=None)
        if silent is not None:
            silent.end()

    def _forward(self, connection: _Connection) -> None:
        """Forward one connection until it ends."""
        try:
            # `close` ends only the connections that it finds. A later connection must not be
            # forwarded.
            if not self._closed:
                connection.forward(self._dial)
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.sock.close()
            self._free.release()


def _listen_on_free_port(ports: tuple[int, ...]) -> socket.socket:
    """Listen on the first of `ports` that is free. Raises Refused if none is free."""
    for port in ports:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port), backlog=MOST_CONNECTIONS)
    raise Refused(
        f"port {ports[0]} of this machine is taken",
        where=f"127.0.0.1:{ports[0]}",
        next="choose another with --port",
    )
