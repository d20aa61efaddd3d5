"""Test TCP ports: connect to many ports at the same time, and read what each server sends. The
caller interprets the answers."""

from __future__ import annotations

import errno
import resource
import select
import socket
import time

from tfdeploy.agent.annotations import Any, List, Optional
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.record import NamedTuple

AT_ONCE = 200  # limits the connections that are open at the same time
OTHER_FILES = 64  # this many file descriptors are left for other uses in this process


class Target(NamedTuple):
    """A port to connect to. `row`: a result of getaddrinfo. After connecting, one line is read, but
    at most `most_bytes` bytes and for at most `read_s` seconds. If `most_bytes` is 0, nothing is
    read."""

    row: Any
    port: int
    most_bytes: int = 0
    read_s: float = 0.0


class Answer(NamedTuple):
    """The result for one target. `error`: the errno of the connection (ETIMEDOUT if there was no
    answer), or 0. `ended`: True if the other side has closed the connection. `source`: the address
    from which this host connected."""

    connected: bool
    error: int = 0
    data: bytes = b""
    ended: bool = False
    source: str = ""


def probe(
    targets: List[Target], connect_s: float, *, close_with_reset: bool = False
) -> List[Answer]:
    """Return an answer for each target. No connection stays open.

    `close_with_reset`: end the connections with RST, so that they are in TIME_WAIT on neither side.
    """
    answers: List[Answer] = []
    # The limit is always a number: Linux refuses RLIM_INFINITY for open files.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    at_once = max(1, min(AT_ONCE, limit - OTHER_FILES))
    for first in range(0, len(targets), at_once):
        answers += _probe_together(targets[first : first + at_once], connect_s, close_with_reset)
    return answers


def _probe_together(targets: List[Target], connect_s: float, reset: bool) -> List[Answer]:
    deadline = time.monotonic() + connect_s
    attempts = [_Attempt(target, deadline, reset) for target in targets]
    waiting = attempts
    while True:
        waiting = [each for each in waiting if each.answer is None]
        if not waiting:
            return [each.answer for each in attempts if each.answer is not None]
        poll = select.poll()
        for each in waiting:
            poll.register(each.socket, select.POLLIN if each.connected else select.POLLOUT)
        wait_s = max(0.0, min(each.deadline for each in waiting) - time.monotonic())
        ready = {descriptor for descriptor, _ in poll.poll(wait_s * 1000)}
        now = time.monotonic()
        for each in waiting:
            if each.socket.fileno() in ready:
                each.handle_event()
            elif each.deadline <= now:
                each.finish(0 if each.connected else errno.ETIMEDOUT)


class _Attempt:
    """One connection. `answer`: the result; None until it is known. The connection is closed once
    the result is known."""

    def __init__(self, target: Target, deadline: float, reset: bool) -> None:
        self.deadline, self.connected = deadline, False
        self.answer: Optional[Answer] = None
        self._target, self._data = target, b""
        try:
            self.socket = socket.socket(target.row[0])
        except OSError as error:
            self.answer = Answer(False, error.errno or errno.EINVAL)
            return
        self.socket.setblocking(False)
        if reset:
            sockets.reset_on_close(self.socket)
        where = target.row[4]
        code = self.socket.connect_ex((where[0], target.port, *where[2:]))
        if code not in (0, errno.EINPROGRESS):
            self.finish(code)

    def handle_event(self) -> None:
        """Handle an event of the socket: the connect has ended, or data can be read."""
        if self.connected:
            self._read()
            return
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self.connected = not code
        self.deadline = time.monotonic() + self._target.read_s
        if code or not self._target.most_bytes:
            self.finish(code)

    def _read(self) -> None:
        try:
            received = self.socket.recv(self._target.most_bytes - len(self._data))
        except OSError as error:
            self.finish(error.errno or errno.EINVAL)
            return
        self._data += received
        if not received or b"\n" in received or len(self._data) >= self._target.most_bytes:
            self.finish(0, closed_by_peer=not received)

    def finish(self, error: int, closed_by_peer: bool = False) -> None:
        try:
            source = str(self.socket.getsockname()[0])
        except OSError:
            source = ""
        self.answer = Answer(self.connected, error, self._data, closed_by_peer, source)
        self.socket.close()
