"""Decide whether a connection to the mesh's port may begin a TLS handshake. The mesh connects the
minders (the agent's daemons) of all hosts of a run. The decision needs only the first bytes of the
connection, and costs about a thousandth of a handshake. This module sends nothing.

A member of the run puts a token, which only members can compute, into the server name (SNI) of its
first TLS message. Connections with the token and connections without it have separate limits. Of
those without it, only a few per second may begin a handshake.

Not all connections without the token are refused: one of them may come from a host of the run that
has reached this host by mistake, and therefore sent the token of another host. The handshake shows
such a host which host it has reached (see the verb run.links).
"""

from __future__ import annotations

import hashlib
import select
import socket
import time

from tfdeploy.agent.annotations import Callable, Dict, Optional
from tfdeploy.agent.host import threads
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.limit import TokenBucket

# The limits of handshakes: (how many per second on average, how many without a pause).
MEMBERS, STRANGERS = (100.0, 300.0), (10.0, 20.0)
# At most this many connections may wait until their first TLS message is complete. If there are
# more, the oldest one is closed.
MOST_WAITING = 256
# A connection is closed if its first TLS message is not complete after this time.
HELLO_TIMEOUT_S = 5.0
_HELLO_BYTES = 4096
_HANDSHAKE = b"\x16\x03"
# The pause after a poll in which a connection was refused, or sent more bytes of a message that is
# still not complete. More connections arrive in the pause, so the next poll handles many at once.
_PAUSE_S = 0.01
_AT_ONCE = 256  # at most this many connections are accepted after one poll


def server_name_token(ca_pem: str, host: str) -> str:
    """Return the server name (SNI) that members of the run use to connect to `host`. `ca_pem`: the
    certificate of the run's CA in PEM. TLS never sends this certificate, so strangers cannot
    compute the name."""
    return "m" + hashlib.sha256(("mesh %s %s" % (host, ca_pem)).encode("utf-8")).hexdigest()[:40]


class HandshakeGate:
    """Accepts connections on `listener` and admits those that may begin a TLS handshake. `close`
    also closes the listener.

    `token`: the server name (see server_name_token) by which a client shows that it is a member of
    the run. A client with the token may connect from any address.
    `is_known(address)`: whether the address belongs to a host of the run. A client without the
    token may connect only from such an address.
    `admit(connection)`: is called on the gate's thread for each admitted connection. It must not
    block, and must close the connection later.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        admit: Callable[[socket.socket], None],
        is_known: Callable[[str], bool],
    ) -> None:
        self._listener, self._wanted, self._admit = listener, token.encode("ascii"), admit
        self._is_known = is_known
        self._members, self._strangers = TokenBucket(*MEMBERS), TokenBucket(*STRANGERS)
        self._refused = TokenBucket(0.0, 0.0)
        # Descriptor -> (connection, when it began to wait). The connection that waits longest is
        # first.
        self._waiting: Dict[int, "tuple[socket.socket, float]"] = {}
        self._closed = False
        self._crowded = False
        listener.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        start_thread(self._admit_until_closed)

    def close(self) -> None:
        self._closed = True
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # so that poll() returns in the gate's thread
        except OSError:
            pass

    def _admit_until_closed(self) -> None:
        while not self._closed:
            try:
                self._handle_poll_events()
            except Exception:  # noqa: BLE001 - members must still be admitted, whatever the error
                if not self._closed:
                    threads.print_error_once("mesh port")
                    self._close_oldest_waiting()
                    time.sleep(0.1)
        self._listener.close()
        for plain, _ in self._waiting.values():
            plain.close()
        self._poll.close()

    def _handle_poll_events(self) -> None:
        self._crowded = False
        for descriptor, _ in self._poll.poll(1.0 if self._waiting else -1):
            if descriptor == self._listener.fileno():
                self._accept_connections()
            elif descriptor in self._waiting:
                self._admit_or_close(self._waiting[descriptor][0])
        began_before = time.monotonic() - HELLO_TIMEOUT_S
        while self._waiting and next(iter(self._waiting.values()))[1] <= began_before:
            self._close_oldest_waiting()
        if self._crowded:
            time.sleep(_PAUSE_S)

    def _accept_connections(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                plain, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            plain.setblocking(False)
            self._admit_or_close(plain)

    def _admit_or_close(self, plain: socket.socket) -> None:
        """Admit the connection or close it. If its first message is not complete, let it wait
        instead."""
        bucket = self._choose_token_bucket(plain)
        if bucket is None:
            self._add_to_waiting(plain)
            return
        if self._waiting.pop(plain.fileno(), None) is not None:
            self._poll.unregister(plain)
        if bucket.try_acquire():
            plain.setblocking(True)
            self._admit(plain)
        else:
            self._crowded = True
            plain.close()

    def _choose_token_bucket(self, plain: socket.socket) -> Optional[TokenBucket]:
        """Return the token bucket that limits this connection: that of members, that of strangers,
        or one that is always empty. Return None if the first TLS message is not complete."""
        try:
            hello = plain.recv(_HELLO_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return self._refused
        if self._wanted in hello:
            return self._members
        if not hello or not hello.startswith(_HANDSHAKE[: len(hello)]):
            return self._refused
        whole = 5 + int.from_bytes(hello[3:5], "big") if len(hello) >= 5 else _HELLO_BYTES
        if len(hello) < min(whole, _HELLO_BYTES):
            return None
        try:
            is_known = self._is_known(str(plain.getpeername()[0]))
        except OSError:
            is_known = False
        return self._strangers if is_known else self._refused

    def _add_to_waiting(self, plain: socket.socket) -> None:
        if plain.fileno() in self._waiting:
            # The connection waits already. More bytes have arrived, but the message is still not
            # complete.
            self._crowded = True
            return
        self._waiting[plain.fileno()] = plain, time.monotonic()
        self._poll.register(plain, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        if len(self._waiting) > MOST_WAITING:
            self._close_oldest_waiting()

    def _close_oldest_waiting(self) -> None:
        self._crowded = True
        for descriptor in list(self._waiting)[:1]:
            # The socket need not be unregistered first: closing it removes it from the epoll set.
            self._waiting.pop(descriptor)[0].close()
