"""Listens on ports for the time of a preflight. Whoever connects is sent a token, so that hosts
know whom they have reached.

A stranger gets that token too, and nothing else: what costs time needs the key, which only hosts of
the preflight have.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time

from tfdeploy.agent.annotations import Any, Callable, Dict, List
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.serve.links import speed as link_speed

KEY_BYTES = 32  # in hexadecimal digits
# connections at once: the oldest gives way, so that a stranger takes neither all descriptors nor
# the room of hosts
_MOST = 256
_QUEUE = 1024  # of connections that are not accepted yet
_KEPT_S = 10.0  # of a connection that does not end
_LOOK_S = 0.1
_MEASURED_AT_ONCE = 4
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class Listener:
    """Use as a context manager. `taken`: port -> why this host cannot listen there."""

    def __init__(self, ports: List[int], token: str, key: str) -> None:
        self.ports: List[int] = []
        self.taken: Dict[str, str] = {}
        self._token, self._key = token.encode() + b"\n", key.encode()
        self._selector = selectors.DefaultSelector()
        self._begun: Dict[socket.socket, float] = {}
        self._measured = threading.Semaphore(_MEASURED_AT_ONCE)
        for port in ports:
            self._listen(port)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in list(self._begun):
            self._drop(connection)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def serve(self, ended: Callable[[], bool]) -> None:
        """Answers until `ended` says so."""
        while not ended():
            for key, _ in self._selector.select(_LOOK_S):
                one: Any = key.fileobj
                if key.data == "listening":
                    self._accept(one)
                else:
                    self._hear(one)
            late = time.monotonic() - _KEPT_S
            for one in [each for each, begun in self._begun.items() if begun < late]:
                self._drop(one)

    def _listen(self, port: int) -> None:
        try:
            one = sockets.claim(port)
        except OSError as error:
            self.taken[str(port)] = error.strerror or str(error)
            return
        try:
            one.listen(_QUEUE)
            one.setblocking(False)
        except OSError as error:
            one.close()
            self.taken[str(port)] = error.strerror or str(error)
            return
        self.ports.append(port)
        self._selector.register(one, selectors.EVENT_READ, "listening")

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                one, _ = listening.accept()
            except OSError:  # none is left, or no descriptor
                return
            try:
                one.setblocking(False)
                one.send(self._token)
            except OSError:
                one.close()
                continue
            if len(self._begun) >= _MOST:
                self._drop(next(iter(self._begun)))
            self._begun[one] = time.monotonic()
            self._selector.register(one, selectors.EVENT_READ, "")

    def _hear(self, one: socket.socket) -> None:
        """The other side has hung up, or asks for a measurement with the key of this preflight."""
        try:
            said = one.recv(KEY_BYTES)
        except OSError:
            said = b""
        if self._key and said == self._key and self._measured.acquire(blocking=False):
            self._forget(one)
            threading.Thread(target=self._measure, args=(one,), daemon=True).start()
        else:
            self._drop(one)

    def _measure(self, one: socket.socket) -> None:
        try:
            with one:
                link_speed.answer(one)
        except OSError:
            pass  # the other side reports it
        finally:
            self._measured.release()

    def _forget(self, one: socket.socket) -> None:
        self._begun.pop(one, None)
        self._selector.unregister(one)

    def _drop(self, one: socket.socket) -> None:
        self._forget(one)
        # A connection in FIN_WAIT would keep the port from a task that does not set SO_REUSEADDR.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        one.close()
