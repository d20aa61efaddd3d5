"""Checks whether this host reaches ports of other hosts, and whether the right host answers there.
Measures the round-trip time and the throughput between two hosts.

Both ends of a measurement are in this module. The measuring host sends commands of one letter.
After P, the other host returns one byte. After S, the measuring host sends data. After R, it
receives data.
"""

from __future__ import annotations

import errno
import os
import socket
import statistics
import struct
import time

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Any, Dict, List, Tuple
from tfdeploy.agent.host.network import port_probe, resolving
from tfdeploy.agent.record import NamedTuple

# Timeout of a connection attempt. TCP repeats a lost first packet after 1 s and after 3 s.
CONNECT_S = 4.0
ANSWER_S = 6.0  # the longest wait for an answer, because a busy host may answer late
RETRY_S = 1.0  # pause before failed ports are tried again, if this host was too busy
MOST_TOKEN = 64  # the greatest length of a token, in bytes
_REASONS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "silent",
    errno.EHOSTUNREACH: "no_route",
    errno.ENETUNREACH: "no_route",
    errno.EPERM: "forbidden",
    errno.EACCES: "forbidden",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
}
_TRANSIENT_ERRORS = (
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
    errno.EINVAL,
)
PINGS = 11  # number of round trips; their median time is reported
SEND_S = 0.5  # duration of a measurement in one direction
MOST_BYTES = 1 << 30  # limit in bytes for one direction, enough to measure a fast link
SILENT_S = 10.0  # timeout while the other host sends nothing
BLOCK = bytes(1 << 18)
_COUNT = struct.Struct("!Q")


class PortTarget(NamedTuple):
    address: str  # an IP address, or a name
    port: int
    token: str  # the text by which a client recognises the right host


class PortFailure(NamedTuple):
    """Why a port failed. `why`: one of the words that docs/agent-protocol.md lists. `detail`: the
    system's error text, or what answers at the port."""

    why: str
    detail: str


def find_failing_ports(targets: List[PortTarget]) -> Dict[int, PortFailure]:
    """Try all ports. Return {index in `targets`: why the port failed}, without the ports that
    work."""
    resolved = resolving.resolve(each.address for each in targets)
    failures: Dict[int, PortFailure] = {}
    socket_addresses: Dict[int, Any] = {}
    for index, each in enumerate(targets):
        row = resolved[each.address]
        is_name = not peer_filter.is_address(each.address)
        loopback = resolving.first_loopback(row) if is_name else None
        if isinstance(row, str):
            failures[index] = PortFailure("unresolved", row)
        elif loopback:
            failures[index] = PortFailure("loopback", loopback)
        else:
            socket_addresses[index] = row[0]
    failures.update(_find_failing_addresses(socket_addresses, targets))
    busy = [index for index, failure in failures.items() if failure.why == "busy"]
    if busy:
        time.sleep(RETRY_S)
        for index in busy:
            del failures[index]
        failures.update(
            _find_failing_addresses({index: socket_addresses[index] for index in busy}, targets)
        )
    return failures


def _find_failing_addresses(
    socket_addresses: Dict[int, Any], targets: List[PortTarget]
) -> Dict[int, PortFailure]:
    probed = [
        port_probe.Target(row, targets[index].port, MOST_TOKEN, ANSWER_S)
        for index, row in socket_addresses.items()
    ]
    answers = port_probe.probe(probed, CONNECT_S, close_with_reset=True)
    failures: Dict[int, PortFailure] = {}
    for index, answer in zip(socket_addresses, answers):  # noqa: B905 - Python 3.8 lacks strict=
        line, newline, _ = answer.data.partition(b"\n")
        if answer.error:
            failures[index] = _connection_failure(answer)
        elif not newline and not answer.ended and len(line) < MOST_TOKEN:
            failures[index] = PortFailure("mute", "")
        elif line != targets[index].token.encode():
            failures[index] = PortFailure("other", _printable(answer.data))
    return failures


def _connection_failure(answer: port_probe.Answer) -> PortFailure:
    code = answer.error
    if code in _TRANSIENT_ERRORS:
        return PortFailure("busy", errno.errorcode.get(code, str(code)))
    return PortFailure(_REASONS.get(code, "error"), os.strerror(code))


def _printable(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()


# --- the speed of a link


class MeasurementFailed(Exception):
    """The measurement failed; the text says why."""


def measure_link(target: PortTarget, key: str) -> Tuple[float, float, float]:
    """Return (round-trip time in ms, Mbit/s to that host, Mbit/s from it). Raises
    MeasurementFailed, OSError."""
    with socket.create_connection((target.address, target.port), timeout=SILENT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _read_line(connection) != target.token.encode():
            raise MeasurementFailed("another machine answers at this port")
        connection.sendall(key.encode())
        ms = statistics.median(_round_trip_s(connection) for _ in range(PINGS)) * 1000
        connection.sendall(b"S")
        began = time.monotonic()
        sent = _send_test_data(connection)
        counted = _COUNT.unpack(_read_exactly(connection, _COUNT.size))[0]
        to = _mbit_s(counted, time.monotonic() - began)
        if counted != sent:
            raise MeasurementFailed("only %d of %d bytes arrived" % (counted, sent))
        connection.sendall(b"R")
        began = time.monotonic()
        received = _receive_test_data(connection)
        return round(ms, 3), round(to, 1), round(_mbit_s(received, time.monotonic() - began), 1)


def serve_measurement(connection: socket.socket) -> None:
    """Carry out the commands of the measuring host until the connection ends. Each command is one
    letter. Raises OSError."""
    connection.setblocking(True)
    connection.settimeout(SILENT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        letter = connection.recv(1)
        if letter == b"P":
            connection.sendall(b"P")
        elif letter == b"S":
            connection.sendall(_COUNT.pack(_receive_test_data(connection)))
        elif letter == b"R":
            _send_test_data(connection)
        else:
            return


def _round_trip_s(connection: socket.socket) -> float:
    began = time.monotonic()
    connection.sendall(b"P")
    _read_exactly(connection, 1)
    return time.monotonic() - began


def _send_test_data(connection: socket.socket) -> int:
    """Send blocks of data for SEND_S seconds. The size of each block is sent before the block. A
    size of 0 marks the end. Return how many bytes of data were sent."""
    until, sent = time.monotonic() + SEND_S, 0
    while time.monotonic() < until and sent < MOST_BYTES:
        connection.sendall(_COUNT.pack(len(BLOCK)))
        connection.sendall(BLOCK)
        sent += len(BLOCK)
    connection.sendall(_COUNT.pack(0))
    return sent


def _receive_test_data(connection: socket.socket) -> int:
    received, buffer = 0, memoryview(bytearray(len(BLOCK)))
    until = time.monotonic() + SEND_S + SILENT_S
    while time.monotonic() < until:
        size = _COUNT.unpack(_read_exactly(connection, _COUNT.size))[0]
        if size == 0:
            return received
        if size > len(BLOCK):
            raise OSError("the other host sends a larger block than a measurement has")
        _receive_into(connection, buffer[:size])
        received += size
    raise OSError("the other host sends data for longer than a measurement takes")


def _read_exactly(connection: socket.socket, byte_count: int) -> bytes:
    received = bytearray(byte_count)
    _receive_into(connection, memoryview(received))
    return bytes(received)


def _receive_into(connection: socket.socket, buffer: memoryview) -> None:
    """Receive as many bytes as the buffer has. Raises OSError."""
    while buffer:
        count = connection.recv_into(buffer)
        if not count:
            raise OSError("the connection ended")
        buffer = buffer[count:]


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while b"\n" not in line and len(line) < MOST_TOKEN:
        part = connection.recv(MOST_TOKEN)
        if not part:
            break
        line += part
    return line.partition(b"\n")[0]


def _mbit_s(byte_count: int, seconds: float) -> float:
    return byte_count * 8 / 1e6 / max(seconds, 1e-6)
