"""Listens on ports during a preflight (`tfdeploy check`), and sends a token to every client. By
this token, a host knows which host it has reached.

Every client gets the token, even a stranger. To measure the link, a client must send a key that
only hosts of the preflight have.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time

from tfdeploy.agent.annotations import Any, Callable, Dict, List
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.serve.links import speed as link_speed

KEY_BYTES = 32  # length of the key in hexadecimal digits
# Beyond this number the oldest connection is closed, so that a stranger can neither use up the
# descriptors nor keep out hosts.
_MAX_CONNECTIONS = 256
_QUEUE = 1024  # limit of connections that wait to be accepted
_CONNECTION_TIMEOUT_S = 10.0  # a client that sends nothing for this time is disconnected
_POLL_S = 0.1
_MEASURED_AT_ONCE = 4


class Listener:
    """Listens on the ports; use it as a context manager. `taken`: port -> why this host cannot
    listen there."""

    def __init__(self, ports: List[int], token: str, key: str) -> None:
        self.ports: List[int] = []
        self.taken: Dict[str, str] = {}
        self._token, self._key = token.encode() + b"\n", key.encode()
        self._selector = selectors.DefaultSelector()
        self._accepted_at: Dict[socket.socket, float] = {}
        self._measured = threading.Semaphore(_MEASURED_AT_ONCE)
        for port in ports:
            self._listen(port)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in list(self._accepted_at):
            self._reset_and_close(connection)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def serve(self, is_done: Callable[[], bool]) -> None:
        """Answer clients until `is_done` returns true."""
        while not is_done():
            for key, _ in self._selector.select(_POLL_S):
                connection: Any = key.fileobj
                if key.data == "listening":
                    self._accept(connection)
                else:
                    self._measure_if_key_matches(connection)
            accepted_before = time.monotonic() - _CONNECTION_TIMEOUT_S
            for connection in [
                each
                for each, accepted_at in self._accepted_at.items()
                if accepted_at < accepted_before
            ]:
                self._reset_and_close(connection)

    def _listen(self, port: int) -> None:
        connection = None
        try:
            connection = sockets.bind_exclusively(port)
            connection.listen(_QUEUE)
            connection.setblocking(False)
        except OSError as error:
            if connection is not None:
                connection.close()
            self.taken[str(port)] = error.strerror or str(error)
            return
        self.ports.append(port)
        self._selector.register(connection, selectors.EVENT_READ, "listening")

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # no connection is waiting, or this process has no free descriptor
                return
            try:
                connection.setblocking(False)
                connection.send(self._token)
            except OSError:
                connection.close()
                continue
            if len(self._accepted_at) >= _MAX_CONNECTIONS:
                self._reset_and_close(next(iter(self._accepted_at)))
            self._accepted_at[connection] = time.monotonic()
            self._selector.register(connection, selectors.EVENT_READ, "")

    def _measure_if_key_matches(self, connection: socket.socket) -> None:
        """Start a measurement if the client sends the key of this preflight. Otherwise close the
        connection."""
        try:
            received = connection.recv(KEY_BYTES)
        except OSError:
            received = b""
        if self._key and received == self._key and self._measured.acquire(blocking=False):
            self._stop_watching(connection)
            start_thread(self._serve_measurement, connection)
        else:
            self._reset_and_close(connection)

    def _serve_measurement(self, connection: socket.socket) -> None:
        try:
            with connection:
                link_speed.serve_measurement(connection)
        except OSError:
            pass  # the other host reports the failure
        finally:
            self._measured.release()

    def _stop_watching(self, connection: socket.socket) -> None:
        self._accepted_at.pop(connection, None)
        self._selector.unregister(connection)

    def _reset_and_close(self, connection: socket.socket) -> None:
        self._stop_watching(connection)
        # A connection in FIN_WAIT would prevent a task without SO_REUSEADDR from using the port.
        sockets.reset_on_close(connection)
        connection.close()
