"""Try TCP ports: connect to many at once, and read what answers. Callers say what an answer means."""

from __future__ import annotations

import errno
import resource
import selectors
import socket
import struct
import threading
import time

from tfdeploy.agent.annotations import Any, Callable, Dict, Iterable, List, Optional, Union
from tfdeploy.agent.record import NamedTuple

RESOLVE_S = 10.0  # for all names together
AT_ONCE = 200
OTHER_FILES = 64  # that this process may have open
_RESET = struct.pack("ii", 1, 0)


class Target(NamedTuple):
    """`row`: of getaddrinfo. `most_bytes`, `read_s`: what is read once it has connected, up to the
    end of a line, and for how long."""

    row: Any
    port: int
    most_bytes: int = 0
    read_s: float = 0.0


class Answer(NamedTuple):
    """`error`: the errno of the connection, ETIMEDOUT where nothing answered; 0: none. `ended`: the
    other side has closed it. `source`: this host's address in it."""

    connected: bool
    error: int = 0
    data: bytes = b""
    ended: bool = False
    source: str = ""


def probe(targets: List[Target], connect_s: float, *, reset: bool = False) -> List[Answer]:
    """Return an answer for each target. No connection stays open.

    `reset`: end connections by RST, so that neither side is left with one in TIME_WAIT.
    """
    answers: List[Answer] = []
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    at_once = AT_ONCE if unlimited else max(1, min(AT_ONCE, limit - OTHER_FILES))
    for first in range(0, len(targets), at_once):
        with _Batch(targets[first : first + at_once], reset) as batch:
            answers += batch.run(connect_s)
    return answers


def resolve(names: Iterable[str]) -> Dict[str, Union[List[Any], str]]:
    """Return name or address -> rows of getaddrinfo, or why there are none. Takes RESOLVE_S at most."""
    found: Dict[str, Union[List[Any], str]] = {}

    def look_up(name: str) -> None:
        try:
            found[name] = list(socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found[name] = str(getattr(error, "strerror", None) or error)[:200]

    names = list(dict.fromkeys(names))
    for name in filter(is_literal, names):
        look_up(name)
    call_for_each(look_up, [name for name in names if name not in found], RESOLVE_S)
    return {name: found.get(name, "no answer") for name in names}


def loopback_in(rows: Union[List[Any], str]) -> Optional[str]:
    """Return the first address by which a host means itself."""
    addresses = [str(row[4][0]) for row in rows] if isinstance(rows, list) else []
    return next((each for each in addresses if each.startswith("127.") or each == "::1"), None)


def is_literal(address: str) -> bool:
    """True for an IP address, also one with a scope."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address.partition("%")[0])
            return True
        except (OSError, ValueError):
            continue
    return False


def call_for_each(function: Callable[[Any], object], values: Iterable[Any], within_s: float) -> None:
    """Call `function(value)` for each on a thread of its own. Returns after `within_s` at the latest."""
    threads = [threading.Thread(target=function, args=(value,), daemon=True) for value in values]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


class _Batch:
    """Connections that are tried together."""

    def __init__(self, targets: List[Target], reset: bool) -> None:
        self._targets, self._reset = targets, reset
        self._selector = selectors.DefaultSelector()
        self._deadlines: Dict[int, float] = {}  # by the index of the target
        self._data: Dict[int, bytes] = {}
        self._answers: Dict[int, Answer] = {}

    def __enter__(self) -> _Batch:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def run(self, connect_s: float) -> List[Answer]:
        deadline = time.monotonic() + connect_s
        for index in range(len(self._targets)):
            self._begin(index, deadline)
        while self._deadlines:
            wait_s = min(self._deadlines.values()) - time.monotonic()
            for key, _ in self._selector.select(max(0.0, wait_s)):
                if key.events & selectors.EVENT_WRITE:
                    self._connect(key)
                else:
                    self._read(key)
            now = time.monotonic()
            for key in list(self._selector.get_map().values()):
                if self._deadlines[key.data] <= now:
                    self._end(key, 0 if key.events & selectors.EVENT_READ else errno.ETIMEDOUT)
        return [self._answers[index] for index in range(len(self._targets))]

    def _begin(self, index: int, deadline: float) -> None:
        target = self._targets[index]
        try:
            connection = socket.socket(target.row[0], socket.SOCK_STREAM)
        except OSError as error:
            self._answers[index] = Answer(False, error.errno or errno.EINVAL)
            return
        connection.setblocking(False)
        if self._reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        where = target.row[4]
        code = connection.connect_ex((where[0], target.port, *where[2:]))
        if code in (0, errno.EINPROGRESS):
            self._selector.register(connection, selectors.EVENT_WRITE, index)
            self._deadlines[index] = deadline
        else:
            connection.close()
            self._answers[index] = Answer(False, code)

    def _connect(self, key: Any) -> None:
        code = key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        target = self._targets[key.data]
        if code or not target.most_bytes:
            self._end(key, code)
        else:
            self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
            self._deadlines[key.data] = time.monotonic() + target.read_s

    def _read(self, key: Any) -> None:
        most = self._targets[key.data].most_bytes
        data = self._data.get(key.data, b"")
        try:
            received = key.fileobj.recv(most - len(data))
        except OSError as error:
            self._end(key, error.errno or errno.EINVAL)
            return
        self._data[key.data] = data = data + received
        if not received or b"\n" in received or len(data) >= most:
            self._end(key, 0, ended=not received)

    def _end(self, key: Any, error: int, ended: bool = False) -> None:
        connected = not error or bool(key.events & selectors.EVENT_READ)
        try:
            source = str(key.fileobj.getsockname()[0])
        except OSError:
            source = ""
        data = self._data.get(key.data, b"")
        self._answers[key.data] = Answer(connected, error, data, ended, source)
        del self._deadlines[key.data]
        self._selector.unregister(key.fileobj)
        key.fileobj.close()
