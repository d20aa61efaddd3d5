"""Connect to many ports at once, repeatedly, and print the results.

This module is a program, whose source knocking.py runs on a host. The program runs until its
standard input is closed. It prints {"address port": {result: number of connections with this
result}}. Its argument is a JSON object with these keys:

    ends      a list of [address, port, hello]: where to connect, and which first message to send
    count     the minimum number of connections to each of the ends
    rate      the number of connections a second to all ends together
    source    the address from which to connect, or ""
    user      the user id under which to run, or 0
"""

from __future__ import annotations

import collections
import errno
import json
import os
import selectors
import socket
import ssl
import struct
import sys
import time
from typing import Any

# How many seconds an attempt to connect may take. While a killed minder (the process that watches
# the run) is being replaced, an attempt to connect to a port that the minder guards gets no answer.
WITHIN_S = 30.0
# How many attempts to connect to one port at one address may be under way at the same time.
MOST_OF_ONE = 24
BURST_S = 0.05
IP_BIND_ADDRESS_NO_PORT = 24
# SO_LINGER with a timeout of 0 resets the connection, so that none stays in TIME_WAIT.
RESET = struct.pack("ii", 1, 0)
WORDS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ENOTCONN: "reset",
}
LOST = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH}


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    context, out = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="stranger").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


HELLOS = {
    # A TensorFlow server answers this text with its settings.
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "tls": client_hello(),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
}


def judged(hello: str, answer: bytes) -> str:
    """Return the result of one attempt to connect. `answer` is what the server has sent.

    Every answer means that the server let the client in, with one exception: "page not found",
    because all pages of TensorBoard have a secret path.
    """
    if not answer:
        return "hung up"
    return "not found" if hello == "http" and answer[9:12] == b"404" else "let in"


class End:
    """One port at one address. `open` counts the attempts to connect that have no result yet."""

    def __init__(self, address: str, port: int, hello: str) -> None:
        self.address, self.port, self.hello = address, port, hello
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.found: collections.Counter[str] = collections.Counter()
        self.tried = self.open = 0


class Connect:
    def __init__(self, end: End, source: str) -> None:
        self.end, self.connected, self.until = end, False, time.monotonic() + WITHIN_S
        self.socket = socket.socket(end.family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if source:
            self.socket.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            self.socket.bind((source, 0))


class Knocker:
    def __init__(self, asked: dict[str, Any]) -> None:
        self.ends = [End(*each) for each in asked["ends"]]
        self.count, self.rate, self.source = asked["count"], asked["rate"], asked["source"]
        self.poll = selectors.DefaultSelector()
        self.poll.register(0, selectors.EVENT_READ)
        # The attempts to connect, in the order in which they began. An attempt that has ended may
        # still be among them.
        self.waiting: collections.deque[Connect] = collections.deque()
        self.stopped, self.tokens, self.at, self.next = False, 0.0, time.monotonic(), 0

    def run(self) -> dict[str, dict[str, int]]:
        while not (
            self.stopped and all(end.tried >= self.count and not end.open for end in self.ends)
        ):
            self._begin_some()
            for key, _ in self.poll.select(0.005):
                if key.data is None:
                    self.stopped = True
                    self.poll.unregister(0)
                else:
                    self._go_on(key.data)
            self._end_late()
        return {f"{end.address} {end.port}": dict(end.found) for end in self.ends}

    def _begin_some(self) -> None:
        now = time.monotonic()
        self.tokens = min(self.tokens + (now - self.at) * self.rate, max(1.0, BURST_S * self.rate))
        self.at, passed = now, 0
        while self.tokens >= 1 and passed < len(self.ends):
            end = self.ends[self.next % len(self.ends)]
            self.next += 1
            if end.open >= MOST_OF_ONE or (self.stopped and end.tried >= self.count):
                passed += 1
                continue
            self.tokens, passed = self.tokens - 1, 0
            self._begin(end)

    def _begin(self, end: End) -> None:
        one = Connect(end, self.source)
        end.tried, end.open = end.tried + 1, end.open + 1
        self.poll.register(one.socket, selectors.EVENT_WRITE, one)
        self.waiting.append(one)
        error = one.socket.connect_ex((end.address, end.port))
        if error not in (0, errno.EINPROGRESS):
            self._end(one, self._word(error))

    def _go_on(self, one: Connect) -> None:
        try:
            if one.connected:
                self._end(one, judged(one.end.hello, one.socket.recv(64)))
                return
            error = one.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            one.connected = True
            one.socket.send(HELLOS[one.end.hello])
            self.poll.modify(one.socket, selectors.EVENT_READ, one)
        except BlockingIOError:
            return
        except OSError as error_:
            self._end(one, self._word(error_.errno or 0))

    def _end_late(self) -> None:
        while self.waiting and (
            self.waiting[0].socket.fileno() < 0 or self.waiting[0].until < time.monotonic()
        ):
            one = self.waiting.popleft()
            if one.socket.fileno() >= 0:
                self._end(one, "stays open" if one.connected else "no answer")

    def _end(self, one: Connect, word: str) -> None:
        self.poll.unregister(one.socket)
        one.socket.close()
        one.end.open -= 1
        one.end.found[word] += 1

    def _word(self, error: int) -> str:
        """Return the result of an attempt to connect that failed with the errno `error`.

        Raises OSError if the peer is not the cause of the error.
        """
        if error in LOST:
            return "no answer"
        if error not in WORDS:
            raise OSError(error, os.strerror(error))
        return WORDS[error]


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if asked["user"]:
        os.setgroups([])
        os.setgid(asked["user"])
        os.setuid(asked["user"])
    print(json.dumps(Knocker(asked).run()))
