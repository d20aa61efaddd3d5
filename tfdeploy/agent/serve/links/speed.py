"""How long a packet takes between two hosts, and how much goes through in a second: both ends of
one measurement.

The side that asks says what it wants by one letter after another: P, a byte that comes back; S, it
sends; R, it receives.
"""

from __future__ import annotations

import socket
import statistics
import struct
import time

from tfdeploy.agent.annotations import List, Tuple
from tfdeploy.agent.serve.links.knock import MOST_TOKEN, Knock

PINGS = 11
SEND_S = 0.5
MOST_BYTES = 1 << 30  # in one direction: of a link so fast that it needs no better figure
SILENT_S = 10.0
BLOCK = bytes(1 << 18)
_COUNT = struct.Struct("!Q")


class Unmeasured(Exception):
    """Why, in words."""


def measure(asked: Knock, key: str) -> Tuple[float, float, float]:
    """(milliseconds there and back, megabits a second to that host, and from it). Raises
    Unmeasured, OSError."""
    with socket.create_connection((asked.address, asked.port), timeout=SILENT_S) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _line(one) != asked.token.encode():
            raise Unmeasured("another machine answers there")
        one.sendall(key.encode())
        ms = statistics.median(_ping_s(one) for _ in range(PINGS)) * 1000
        one.sendall(b"S")
        began = time.monotonic()
        sent = _send(one)
        counted = _COUNT.unpack(_exactly(one, _COUNT.size))[0]
        to = _mbit_s(counted, time.monotonic() - began)
        if counted != sent:
            raise Unmeasured("%d of %d bytes came through" % (counted, sent))
        one.sendall(b"R")
        began = time.monotonic()
        got = _receive(one)
        return round(ms, 3), round(to, 1), round(_mbit_s(got, time.monotonic() - began), 1)


def answer(one: socket.socket) -> None:
    """The other end: does what each letter asks for, until the connection ends. Raises OSError."""
    one.setblocking(True)
    one.settimeout(SILENT_S)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        letter = one.recv(1)
        if letter == b"P":
            one.sendall(b"P")
        elif letter == b"S":
            one.sendall(_COUNT.pack(_receive(one)))
        elif letter == b"R":
            _send(one)
        else:
            return


def _ping_s(one: socket.socket) -> float:
    began = time.monotonic()
    one.sendall(b"P")
    _exactly(one, 1)
    return time.monotonic() - began


def _send(one: socket.socket) -> int:
    """Blocks with their size before them, for SEND_S; a size of 0 ends it. The bytes sent."""
    until, sent = time.monotonic() + SEND_S, 0
    while time.monotonic() < until and sent < MOST_BYTES:
        one.sendall(_COUNT.pack(len(BLOCK)))
        one.sendall(BLOCK)
        sent += len(BLOCK)
    one.sendall(_COUNT.pack(0))
    return sent


def _receive(one: socket.socket) -> int:
    got, room = 0, memoryview(bytearray(len(BLOCK)))
    until = time.monotonic() + SEND_S + SILENT_S
    while time.monotonic() < until:
        size = _COUNT.unpack(_exactly(one, _COUNT.size))[0]
        if size == 0:
            return got
        if size > len(BLOCK):
            raise OSError("what comes is no measurement")
        filled = 0
        while filled < size:
            count = one.recv_into(room[filled:size])
            if not count:
                raise OSError("the connection ended")
            filled += count
        got += size
    raise OSError("it sends without end")


def _exactly(one: socket.socket, count: int) -> bytes:
    parts: List[bytes] = []
    while count:
        part = one.recv(count)
        if not part:
            raise OSError("the connection ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _line(one: socket.socket) -> bytes:
    said = b""
    while b"\n" not in said and len(said) < MOST_TOKEN:
        part = one.recv(MOST_TOKEN)
        if not part:
            break
        said += part
    return said.partition(b"\n")[0]


def _mbit_s(count: int, seconds: float) -> float:
    return count * 8 / 1e6 / max(seconds, 1e-6)
