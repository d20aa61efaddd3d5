"""Accept connections of the run's members at the mesh's port, and pass each of them to a handler. A
member sends one message on a connection, and the handler answers it.

The number of open connections is limited. A client without a certificate of this run gets no
answer.
"""

from __future__ import annotations

import socket
import ssl
import threading

from tfdeploy.agent import json_text, wire
from tfdeploy.agent.annotations import Any, Callable, Dict, List
from tfdeploy.agent.host import threads
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.mesh import bounded_json, handshake_gate, tls

MAX_MESSAGE_BYTES = wire.MAX_KNOWN_BYTES
# How long one operation on a connection may take, and how long receiving one message may take.
TIMEOUT_S = 5.0
MAX_PER_MEMBER = 16  # one member may have at most this many open connections
MAX_STRANGERS = 32  # at most this many connections may be in the TLS handshake at one time


class MeshListener:
    """Serves the mesh's port. `listener`: a bound socket, which `close` closes.

    For each connection of a host in `members`, `answer(host, channel)` is called on a new thread.
    `answer` may raise OSError and ValueError. `token` and `is_known`: see
    handshake_gate.HandshakeGate.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        members: List[str],
        answer: Callable[[str, ssl.SSLSocket], None],
        token: str,
        is_known: Callable[[str], bool] = lambda address: True,
    ) -> None:
        self._context = context
        self._members = members
        self._answer = answer
        self._lock = threading.Lock()
        # Descriptor -> connection. The oldest connection comes first.
        self._open: Dict[int, socket.socket] = {}
        # Descriptor -> name of the member, for connections whose handshake has finished. Such a
        # connection may stay open for a long time, for example to transfer a checkpoint.
        self._of_members: Dict[int, str] = {}
        listener.listen(1024)
        self._gate = handshake_gate.HandshakeGate(
            listener, token, self._start_handshake_thread, is_known
        )

    def close(self) -> None:
        self._gate.close()

    def _start_handshake_thread(self, plain: socket.socket) -> None:
        """Start the TLS handshake on a new thread. If the system has no descriptor or thread left,
        close the connection. A member will try again."""
        number = None
        try:
            number = self._register_connection(plain)
            start_thread(self._serve_connection, plain, number)
        except (OSError, RuntimeError, MemoryError):
            plain.close()
            if number is not None:
                self._close_connection(number)

    def _close_connection(self, connection_number: int) -> None:
        with self._lock:
            self._of_members.pop(connection_number, None)
            self._open.pop(connection_number).close()

    def _register_connection(self, plain: socket.socket) -> int:
        """Register a connection and return its number. If too many connections are still in their
        handshake, shut down the oldest of them."""
        # TLS takes over the original socket. The duplicate is kept, so that the connection can be
        # shut down from another thread.
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
                    pass  # the connection is closed already
        return guard.fileno()

    def _serve_connection(self, plain: socket.socket, connection_number: int) -> None:
        try:
            with plain:
                plain.settimeout(TIMEOUT_S)
                with self._context.wrap_socket(plain, server_side=True) as channel:
                    host = tls.peer_name(channel)
                    if host in self._members and self._try_register_member(
                        str(host), connection_number
                    ):
                        self._answer(str(host), channel)
        except (OSError, ValueError):
            pass  # a stranger needs no answer, and a member will try again
        except Exception:  # noqa: BLE001 - a peer that will try again
            threads.print_error_once("a peer's connection")
        finally:
            self._close_connection(connection_number)

    def _try_register_member(self, host: str, connection_number: int) -> bool:
        with self._lock:
            if list(self._of_members.values()).count(host) >= MAX_PER_MEMBER:
                return False
            self._of_members[connection_number] = host
            return True


def encode_message(part: wire.HostPart, **fields: object) -> bytes:
    """Return a message from this host to another host of the run. It is one line of JSON."""
    return (
        json_text.encode({"v": wire.VERSION, "run": part.run, "from": part.host, **fields}) + b"\n"
    )


def receive_message(channel: ssl.SSLSocket) -> Any:
    """Receive one line, and return its JSON value. Raises OSError if the connection fails or the
    line does not arrive within TIMEOUT_S. Raises ValueError if the line is invalid."""
    return bounded_json.parse(tls.read_line(channel, MAX_MESSAGE_BYTES, TIMEOUT_S))
