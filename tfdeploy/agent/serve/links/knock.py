"""Checks whether this host reaches ports of other hosts, and whether the right host answers
there."""

from __future__ import annotations

import errno
import os
import time

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Any, Dict, List
from tfdeploy.agent.host.network import port_probe, resolving
from tfdeploy.agent.record import NamedTuple

CONNECT_S = 4.0  # the kernel repeats a lost first packet after 1 s and after 3 s
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
    answers = port_probe.probe(probed, CONNECT_S, reset=True)
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
