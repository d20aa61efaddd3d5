"""Answers check.listen, check.knock and check.measure, which test whether hosts reach each other.
`tfdeploy check` calls them; no run is needed.

A listening host sends a token to every client, even to a stranger. By the token, a client knows
which host it has reached. A client that wants to measure the link must send a key, which only the
hosts of the same `tfdeploy check` have.
"""

from __future__ import annotations

import re
import selectors
import socket
import threading
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Callable, Dict, List
from tfdeploy.agent.call import Call, Verb
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.serve import links
from tfdeploy.agent.serve.links import PortTarget, find_failing_ports

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOST_S = 3600.0
MOST_PORTS = 64
MOST_LINKS = 20_000
_HEX = re.compile(r"[0-9a-f]{32}\Z")
_ADDRESS = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:%-]{0,254}\Z|::[0-9A-Fa-f:.]*\Z")
KEY_BYTES = 32  # the key is sent as 32 hexadecimal digits
# At most this many connections stay open; one more closes the oldest. So a stranger can neither use
# up the file descriptors nor keep out hosts.
_MAX_CONNECTIONS = 256
_QUEUE = 1024  # limit of connections that wait to be accepted
_CONNECTION_TIMEOUT_S = 10.0  # a client that sends nothing for this time is disconnected
_POLL_S = 0.1
_MEASURED_AT_ONCE = 4


def listen_on_ports(call: Call) -> Answer:
    """Listen on these ports until the call is cancelled, and send the token to every client. A
    client that answers with the key may measure the link. Only the hosts of the same `tfdeploy
    check` have the key.

    Args: ports, token, key, seconds (end after this time).

    Raises VerbError bad_argument.
    """
    ports = [_checked_port(port) for port in call.rows("ports")[:MOST_PORTS]]
    until = time.monotonic() + min(call.number("seconds") or 60.0, MOST_S)
    with Listener(ports, _checked_hex(call, "token"), _checked_hex(call, "key")) as listener:
        call.item({"ports": listener.ports, "taken": listener.taken}, b"")
        listener.serve(lambda: call.cancelled.is_set() or time.monotonic() >= until)
    return {}


def try_links(call: Call) -> Answer:
    """Connect to all these ports of other hosts at the same time, and report the ports that do not
    work.

    Args: links [[address, port, token], ...].

    Raises VerbError bad_argument.
    """
    targets = [_parse_target(row) for row in call.rows("links", str, int, str)[:MOST_LINKS]]
    failures = sorted(find_failing_ports(targets).items())
    return {"asked": len(targets), "failed": [(index, *failure) for index, failure in failures]}


def measure_one_link(call: Call) -> Answer:
    """Measure the link to one listening host: the round-trip time, and the throughput in each
    direction, for half a second each.

    Args: link [address, port, token], key.

    Raises VerbError bad_argument.
    """
    target, key = _parse_target(call.rows("link")), _checked_hex(call, "key")
    answer: Answer = dict.fromkeys(("ms", "to_mbit_s", "from_mbit_s"))
    try:
        ms, to, back = links.measure_link(target, key)
    except (OSError, ValueError, links.MeasurementFailed) as error:
        return {**answer, "why": (str(error) or type(error).__name__)[:200]}
    return {"ms": ms, "to_mbit_s": to, "from_mbit_s": back, "why": ""}


def _parse_target(row: Any) -> PortTarget:
    types = [str, int, str]
    if [*map(type, row)] != types or not _ADDRESS.match(row[0]) or not _HEX.match(row[2]):
        raise VerbError("bad_argument", "%.200r is not [address, port, token]" % (row,))
    return PortTarget(row[0], _checked_port(row[1]), row[2])


def _checked_port(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 65535:
        raise VerbError("bad_argument", "%.200r is no port" % (value,))
    return value


def _checked_hex(call: Call, key: str) -> str:
    value = call.text(key)
    if not _HEX.match(value):
        raise VerbError("bad_argument", "%s is not 32 hexadecimal digits" % key)
    return value


# --- listening for other hosts


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
        """Start a measurement if the client sends the right key. Otherwise close the connection."""
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
                links.serve_measurement(connection)
        except OSError:
            pass  # the other host reports the failure
        finally:
            self._measured.release()

    def _stop_watching(self, connection: socket.socket) -> None:
        self._accepted_at.pop(connection, None)
        self._selector.unregister(connection)

    def _reset_and_close(self, connection: socket.socket) -> None:
        self._stop_watching(connection)
        # Reset the connection instead of closing it normally. A normal close leaves the connection
        # in FIN_WAIT, and then a task without SO_REUSEADDR cannot use the port.
        sockets.reset_on_close(connection)
        connection.close()


VERBS: Dict[str, Verb] = {
    "check.listen": listen_on_ports,
    "check.knock": try_links,
    "check.measure": measure_one_link,
}
