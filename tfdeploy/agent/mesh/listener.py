"""Accept connections of the run's members at the mesh's port, and let a handler answer the one
message of each connection.

The number of open connections is limited. A peer without a certificate of this run gets no answer.
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
TIMEOUT_S = 5.0  # of one operation on a connection, and of one message
MOST_OF_ONE = 16  # limits the open connections of one member
MAX_STRANGERS = 32  # limits the open connections without a finished handshake


class MeshListener:
    """Serves the mesh's port. `listener`: a bound socket, which this object closes.

    `answer(host, channel)` is called for each connection of `members`, on its own thread. It may
    raise OSError and ValueError. For `wanted` (the members' token) and `is_known` see
    handshake_gate.py.
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
        # descriptor -> member. Such a connection may stay open long, to transfer a checkpoint.
        self._of_members: Dict[int, str] = {}
        listener.listen(1024)
        self._gate = handshake_gate.Gate(listener, wanted, self._accept, is_known)

    def close(self) -> None:
        self._gate.close()

    def _accept(self, plain: socket.socket) -> None:
        """Start the handshake on its own thread. If no descriptor or thread is left for it, close
        the connection; a member retries."""
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
        """Register a connection and return its number. If there are too many without a finished
        handshake, shut down the oldest one of these."""
        # The duplicate stays open when TLS takes over the original descriptor.
        guard = plain.dup()
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
    """Return a message from this host to another host of the run, as one line of JSON."""
    body = dict({"v": wire.VERSION, "run": part.run, "from": part.host}, **fields)
    return json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n"


def receive(channel: ssl.SSLSocket) -> Any:
    """Return the JSON value of one line. Raises OSError, also if the line does not arrive within
    TIMEOUT_S, and ValueError."""
    return bounded_json.parse(tls.read_line(channel, MAX_MESSAGE_BYTES, TIMEOUT_S))
