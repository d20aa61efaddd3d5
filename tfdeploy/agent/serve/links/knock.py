"""Whether this host reaches ports of other hosts, and whether the right host answers there."""

from __future__ import annotations

import errno
import os
import time

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Any, Dict, List
from tfdeploy.agent.host.network import port_probe, resolving
from tfdeploy.agent.record import NamedTuple

CONNECT_S = 4.0  # a lost first packet is sent again after 1 and after 3 s
ANSWER_S = 6.0  # of a host that is busy
RETRY_S = 1.0
MOST_TOKEN = 64
_WORDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "silent",
    errno.EHOSTUNREACH: "no_route",
    errno.ENETUNREACH: "no_route",
    errno.EPERM: "forbidden",
    errno.EACCES: "forbidden",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
}
_PASSING = (
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
    errno.EINVAL,
)


class Knock(NamedTuple):
    address: str  # an IP address, or a name
    port: int
    token: str  # what the right host answers


class Failed(NamedTuple):
    """`why`: a word of docs/agent-protocol.md. `detail`: what the system says, or what answers
    there."""

    why: str
    detail: str


def knock_all(asked: List[Knock]) -> Dict[int, Failed]:
    """place in `asked` -> why it failed; those that are not in it work."""
    resolved = resolving.resolve(each.address for each in asked)
    failures: Dict[int, Failed] = {}
    rows: Dict[int, Any] = {}
    for place, each in enumerate(asked):
        row = resolved[each.address]
        home = None if peer_filter.is_address(each.address) else resolving.loopback_in(row)
        if isinstance(row, str):
            failures[place] = Failed("unresolved", row)
        elif home:
            failures[place] = Failed("loopback", home)
        else:
            rows[place] = row[0]
    failures.update(_knock(rows, asked))
    busy = [place for place, failure in failures.items() if failure.why == "busy"]
    if busy:
        time.sleep(RETRY_S)
        again = _knock({place: rows[place] for place in busy}, asked)
        failures = {place: failure for place, failure in failures.items() if place not in busy}
        failures.update(again)
    return failures


def _knock(rows: Dict[int, Any], asked: List[Knock]) -> Dict[int, Failed]:
    targets = [
        port_probe.Target(row, asked[place].port, MOST_TOKEN, ANSWER_S)
        for place, row in rows.items()
    ]
    answers = port_probe.probe(targets, CONNECT_S, reset=True)
    failures: Dict[int, Failed] = {}
    for place, answer in zip(rows, answers):  # noqa: B905 - Python 3.8 knows no strict
        line, newline, _ = answer.data.partition(b"\n")
        if answer.error:
            failures[place] = _failure(answer)
        elif not newline and not answer.ended and len(line) < MOST_TOKEN:
            failures[place] = Failed("mute", "")
        elif line != asked[place].token.encode():
            failures[place] = Failed("other", _shown(answer.data))
    return failures


def _failure(answer: port_probe.Answer) -> Failed:
    code = answer.error
    if code in _PASSING:
        return Failed("busy", errno.errorcode.get(code, str(code)))
    return Failed(_WORDS.get(code, "error"), os.strerror(code))


def _shown(raw: bytes) -> str:
    return "".join(
        char if char.isprintable() else " " for char in raw.decode("utf-8", "replace")
    ).strip()
