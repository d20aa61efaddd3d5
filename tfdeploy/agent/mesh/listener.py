"""Accept connections of the run's members at the mesh's port, a few at a time, with one message on
each.

A peer without a certificate of this run gets no answer.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Any, Callable, Dict, List
from tfdeploy.agent.host import thread_errors
from tfdeploy.agent.mesh import bounded_json, handshake_gate, tls

MAX_MESSAGE_BYTES = wire.MAX_KNOWN_BYTES
TIMEOUT_S = 5.0
MOST_OF_ONE = 16  # connections of one member
MAX_STRANGERS = 32  # connections without a finished handshake


class MeshListener:
    """Serves the mesh's port. `listener` is bound, and is closed here.

    `answer(host, channel)` is called for each connection of `members`, on its own thread, and may
    raise OSError and ValueError. For `wanted` (the members' token) and `is_known` (true for an
    address of the run's hosts) see handshake_gate.py.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        members: List[str],
        answer: Callable[[str, ssl.SSLSocket], None],
        wanted: str,
        is_known: Callable[[str], bool] = lambda address: True,
    ) -> None:
        self._context = context
        self._members = members
        self._answer = answer
        self._lock = threading.Lock()
        self._open: Dict[int, socket.socket] = {}  # oldest first
        # descriptor -> member: these may stay open long, for a checkpoint
        self._of_members: Dict[int, str] = {}
        listener.listen(1024)
        self._gate = handshake_gate.Gate(listener, wanted, self._accept, is_known)

    def close(self) -> None:
        self._gate.close()

    def _accept(self, plain: socket.socket) -> None:
        """Start the handshake on its own thread. Without a descriptor or thread for it, close the
        connection: members try again."""
        number = None
        try:
            number = self._register(plain)
            threading.Thread(target=self._serve, args=(plain, number), daemon=True).start()
        except (OSError, RuntimeError, MemoryError):
            plain.close()
            if number is not None:
                self._close(number)

    def _close(self, number: int) -> None:
        with self._lock:
            self._of_members.pop(number, None)
            self._open.pop(number).close()

    def _register(self, plain: socket.socket) -> int:
        """Count a connection. If there are too many, close the oldest one without a finished
        handshake."""
        guard = plain.dup()  # still open here when TLS takes over the socket
        with self._lock:
            self._open[guard.fileno()] = guard
            strangers = [
                each for number, each in self._open.items() if number not in self._of_members
            ]
            if len(strangers) > MAX_STRANGERS:
                try:
                    strangers[0].shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is closed already
        return guard.fileno()

    def _serve(self, plain: socket.socket, number: int) -> None:
        try:
            with plain:
                plain.settimeout(TIMEOUT_S)
                with self._context.wrap_socket(plain, server_side=True) as channel:
                    host = tls.peer_name(channel)
                    if host in self._members and self._count_member(str(host), number):
                        self._answer(str(host), channel)
        except (OSError, ValueError):
            pass  # a stranger, or a peer that will try again
        except Exception:  # noqa: BLE001 - a peer that will try again
            thread_errors.report_once("a peer's connection")
        finally:
            self._close(number)

    def _count_member(self, host: str, number: int) -> bool:
        with self._lock:
            if list(self._of_members.values()).count(host) >= MOST_OF_ONE:
                return False
            self._of_members[number] = host
            return True


def message(part: wire.HostPart, **fields: object) -> bytes:
    """Return one line from this host to another host of the run."""
    body = dict({"v": wire.VERSION, "run": part.run, "from": part.host}, **fields)
    return json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n"


def receive(channel: ssl.SSLSocket) -> Any:
    """Return one JSON line, received within TIMEOUT_S. Raises OSError, ValueError."""
    return bounded_json.parse(tls.read_line(channel, MAX_MESSAGE_BYTES, TIMEOUT_S))
