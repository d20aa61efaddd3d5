"""Whether this host reaches ports of other hosts, all at once in one process: connects, and reads who answers.

A connection is reset once the answer is read, so that neither side is left with one in TIME_WAIT.
"""

from __future__ import annotations

import errno
import os
import resource
import selectors
import socket
import struct
import time

from tfdeploy.agent.annotations import Any, Dict, List, Optional, Tuple
from tfdeploy.agent.health.reach import ask_all
from tfdeploy.agent.record import NamedTuple

CONNECT_S = 4.0  # a lost first packet is sent again after 1 and after 3 s
ANSWER_S = 10.0  # of a host that is busy
AT_ONCE = 200
OTHER_FILES = 64  # that this process may have open
AGAIN_S = 1.0
MOST_TOKEN = 64
_RESET = struct.pack("ii", 1, 0)
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
_PASSING = (errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINVAL)


class Knock(NamedTuple):
    address: str  # an IP address, or a name
    port: int
    token: str  # what the right host answers


class Failed(NamedTuple):
    """`why`: a word of docs/agent-protocol.md. `detail`: what the system says, or what answers there."""

    why: str
    detail: str


def knock_all(asked: List[Knock]) -> Dict[int, Failed]:
    """place in `asked` -> why it failed; those that are not in it work."""
    resolved, failed = _resolve([each.address for each in asked])
    found: Dict[int, Failed] = {place: failed[each.address] for place, each in enumerate(asked) if each.address in failed}
    left, at_once = [place for place in range(len(asked)) if place not in found], _at_once()
    for first in range(0, len(left), at_once):
        found.update(_knock({place: asked[place] for place in left[first : first + at_once]}, resolved))
    again = {place: asked[place] for place, failure in found.items() if failure.why == "busy"}
    if again:
        time.sleep(AGAIN_S)
        found = {place: failure for place, failure in found.items() if place not in again}
        found.update(_knock(again, resolved))
    return found


def _at_once() -> int:
    """As many connections as the descriptors of this process suffice for."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return AT_ONCE if most == resource.RLIM_INFINITY else max(1, min(AT_ONCE, most - OTHER_FILES))


def _resolve(addresses: List[str]) -> Tuple[Dict[str, Any], Dict[str, Failed]]:
    """(address -> family and address as connect takes it; those that lead nowhere). Names are looked up all at once."""
    found: Dict[str, Any] = {}
    failed: Dict[str, Failed] = {}

    def look_up(name: str) -> None:
        try:
            rows = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failed[name] = Failed("unresolved", str(getattr(error, "strerror", None) or error)[:200])
            return
        home = [str(row[4][0]) for row in rows if str(row[4][0]).startswith("127.") or row[4][0] == "::1"]
        if home:
            failed[name] = Failed("loopback", home[0])
        else:
            found[name] = (rows[0][0], rows[0][4])

    names = []
    for address in dict.fromkeys(addresses):
        family = _family(address)
        if family is None:
            names.append(address)
        else:
            found[address] = (family, socket.getaddrinfo(address, 0, family, socket.SOCK_STREAM)[0][4])
    ask_all(look_up, names, ANSWER_S)
    for name in names:
        if name not in found:
            failed.setdefault(name, Failed("unresolved", "no answer"))
    return found, dict(failed)


def _family(address: str) -> Optional[int]:
    plain = address.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, plain)
            return family
        except OSError:
            continue
    return None


def _knock(asked: Dict[int, Knock], resolved: Dict[str, Any]) -> Dict[int, Failed]:
    """One deadline for all to connect, and one for all to say who they are."""
    found: Dict[int, Failed] = {}
    with selectors.DefaultSelector() as selector:
        for place, each in asked.items():
            failure = _begin(place, each, resolved[each.address], selector)
            if failure is not None:
                found[place] = failure
        connect_by = time.monotonic() + CONNECT_S
        answer_by = connect_by + ANSWER_S - CONNECT_S
        said: Dict[int, bytes] = {}
        while selector.get_map() and time.monotonic() < answer_by:
            now = time.monotonic()
            for key, _ in selector.select(max(0.01, (connect_by if now < connect_by else answer_by) - now)):
                _go_on(key, asked[key.data], selector, said, found)
            if time.monotonic() >= connect_by:
                _give_up(selector, found)
        for key in list(selector.get_map().values()):
            found[key.data] = Failed("mute", "")
            _end(key.fileobj, selector)
    return found


def _give_up(selector: Any, found: Dict[int, Failed]) -> None:
    """On those that have not connected."""
    for key in [key for key in selector.get_map().values() if key.events & selectors.EVENT_WRITE]:
        found[key.data] = Failed("silent", "")
        _end(key.fileobj, selector)


def _begin(place: int, asked: Knock, where: Any, selector: Any) -> Optional[Failed]:
    family, address = where
    try:
        one = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        return _failure(error.errno or 0)
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    code = one.connect_ex((address[0], asked.port, *address[2:]))
    if code in (0, errno.EINPROGRESS):
        selector.register(one, selectors.EVENT_WRITE, place)
        return None
    one.close()
    return _failure(code)


def _go_on(key: Any, asked: Knock, selector: Any, said: Dict[int, bytes], found: Dict[int, Failed]) -> None:
    """One step of a connection that has something to tell: it is there, or it answers."""
    one, place = key.fileobj, key.data
    if key.events & selectors.EVENT_WRITE:
        code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            found[place] = _failure(code)
            _end(one, selector)
        else:
            selector.modify(one, selectors.EVENT_READ, place)
        return
    try:
        part = one.recv(MOST_TOKEN)
    except OSError as error:
        found[place] = _failure(error.errno or 0)
        _end(one, selector)
        return
    said[place] = said.get(place, b"") + part
    if part and b"\n" not in said[place] and len(said[place]) < MOST_TOKEN:
        return
    if said[place].partition(b"\n")[0] != asked.token.encode():
        found[place] = Failed("other", _shown(said[place]))
    _end(one, selector)


def _end(one: Any, selector: Any) -> None:
    selector.unregister(one)
    one.close()


def _failure(code: int) -> Failed:
    if code in _PASSING:
        return Failed("busy", errno.errorcode.get(code, str(code)))
    return Failed(_WORDS.get(code, "error"), os.strerror(code))


def _shown(raw: bytes) -> str:
    return "".join(char if char.isprintable() else " " for char in raw.decode("utf-8", "replace")).strip()
