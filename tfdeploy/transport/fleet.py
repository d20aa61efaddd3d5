"""Sessions to many hosts: opened once, used in parallel, closed together. See protocols.Fleet.

It starts one thread for each host that is at work. The caller's thread waits in a way that Ctrl-C ends.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.protocols import Session
from tfdeploy.transport.rsync import transfer
from tfdeploy.transport.session import SshSession, open_session
from tfdeploy.transport.ssh import descriptors
from tfdeploy.transport.ssh.connect import Connector

PARALLEL = 32
FEW = 8  # hosts at once are quick enough
WAITING = 8  # hosts that are waited for, for each one that may be at work
WAITS_S = 2.0  # a host that is at work for longer is waited for: so many begin at once, and no more
DIALS = 4  # hosts being dialled for each one that may be at work
_LACKING = "the inventory (within --limit and --exclude) has no host of that name"
V = TypeVar("V")


class SshFleet:
    """Use as a context manager, or call `close`. `each` may be called by several threads."""

    def __init__(self, parallel: int = PARALLEL) -> None:
        descriptors.raise_limit()
        self._parallel = max(1, parallel)
        self._connector = Connector(self._parallel)
        self._lock = threading.Lock()
        self._rooms: dict[str, _Room] = {}
        self._closed = False

    def connect(self, hosts: tuple[Host, ...]) -> dict[str, Session | TfdeployError]:
        return self._each(hosts, lambda session: session, None, keep=True)

    def each(
        self,
        hosts: tuple[Host, ...],
        action: Callable[[Session], V],
        *,
        on_done: Callable[[str, V | TfdeployError], None] | None = None,
        waits: bool = False,
    ) -> dict[str, V | TfdeployError]:
        """`on_done` is called in the caller's thread, as hosts are done. Results in the order of `hosts`."""
        return self._each(hosts, action, on_done, keep=False, waits=waits)

    def _each(
        self,
        hosts: tuple[Host, ...],
        action: Callable[[Session], V],
        on_done: Callable[[str, V | TfdeployError], None] | None,
        *,
        keep: bool,
        waits: bool = False,
    ) -> dict[str, V | TfdeployError]:
        waiting = deque(hosts)
        done: queue.SimpleQueue[tuple[str, V | BaseException]] = queue.SimpleQueue()
        places = _Places(self._parallel, WAITS_S if waits else None)
        workers, spare = self._workers(hosts, self._parallel * (WAITING if waits else 1))

        def work() -> None:
            with contextlib.suppress(IndexError):
                while True:
                    host = waiting.popleft()
                    done.put((host.name, self._one(host, action, places)))
                    if spare and not keep:
                        self._let_go(host)

        for number in range(min(workers, len(hosts))):
            threading.Thread(target=work, name=f"fleet-{number}", daemon=True).start()
        found: dict[str, V | TfdeployError] = {}
        bugs: list[Exception] = []
        try:
            for _ in hosts:
                name, result = done.get()
                if isinstance(result, Exception) and not isinstance(result, TfdeployError):
                    bugs.append(result)  # it may be one host's doing: the others are served first
                    continue
                if isinstance(result, BaseException) and not isinstance(result, TfdeployError):
                    raise result
                found[name] = result
                if on_done is not None:
                    on_done(name, result)
            for bug in bugs:
                raise bug
        finally:
            waiting.clear()  # a bug or Ctrl-C: no further host is begun
            places.closed = True
        return {host.name: found[host.name] for host in hosts}

    def connected(self, hosts: tuple[Host, ...]) -> tuple[Host, ...]:
        with self._lock:
            rooms = dict(self._rooms)
        return tuple(host for host in hosts if (room := rooms.get(host.name)) and room.session is not None and room.session.alive)

    def session(self, host: Host) -> SshSession:
        """The session of one host, opened where needed. Raises HostUnreachable, ConfigError."""
        room = self._room(host)
        with room.lock:
            if room.session is None or not room.session.alive:
                room.session = open_session(host, self._connector)
                room.session.fences = room.fences
                if self._closed:
                    room.session.close()
            return room.session

    def _room(self, host: Host) -> _Room:
        if not host.address:
            raise HostUnreachable(_LACKING, where=host.name, next="-i with an inventory that has it", retries=0)
        with self._lock:
            if self._closed:
                raise HostUnreachable("the sessions are closed", where=host.name)
            return self._rooms.setdefault(host.name, _Room())

    def close(self) -> None:
        """Ends every session at once; who waits on one gets HostUnreachable. May be called again."""
        with self._lock:
            self._closed = True
            sessions = [room.session for room in self._rooms.values() if room.session is not None]
            self._rooms.clear()
        transfer.end({session.target for session in sessions})
        for session in sessions:
            session.close()
        self._connector.close()

    def __enter__(self) -> SshFleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _workers(self, hosts: tuple[Host, ...], at_once: int) -> tuple[int, bool]:
        """(how many hosts may be dialled or at work at once; whether sessions are to be closed, as too few may be open).
        Those that wait for a host that is dead are not missed by the others."""
        new = len(hosts) - len(self.connected(hosts))
        wanted = max(at_once, self._parallel * DIALS) if new > self._parallel else at_once
        free = descriptors.free()
        while_dialled = (free - new) // descriptors.DIAL
        if while_dialled >= min(wanted, new, FEW):
            return max(1, min(wanted, while_dialled)) if new else wanted, False
        return max(1, min(wanted, free // (1 + descriptors.DIAL))), True

    def _let_go(self, host: Host) -> None:
        """Makes room for another host's session. One that is used, or holds something there, stays."""
        with self._lock:
            room = self._rooms.get(host.name)
        if room is None:
            return
        with room.lock:
            if room.users == 0 and room.session is not None and room.session.idle:
                room.session.close()
                room.session = None

    def _one(self, host: Host, action: Callable[[Session], V], places: _Places) -> V | BaseException:
        try:
            with self._room(host).use():
                session = self.session(host)
                with places.take():
                    if places.closed:
                        raise HostUnreachable("the others were given up", where=host.name)
                    return action(session)
        except BaseException as error:  # noqa: BLE001  # handed to the caller's thread, which raises what is a bug
            return error


class _Places:
    """For the hosts that are at work at once. What is dialled meanwhile takes none, nor what was only waited for so long."""

    def __init__(self, count: int, waits_s: float | None) -> None:
        self.closed = False
        self._free, self._waits_s = threading.Semaphore(count), waits_s

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        self._free.acquire()
        given = threading.Lock()  # taken by who gives the place back

        def give_back() -> None:
            if given.acquire(blocking=False):
                self._free.release()

        timer = None if self._waits_s is None else threading.Timer(self._waits_s, give_back)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            give_back()


class _Room:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: SshSession | None = None
        self.fences: dict[str, int] = {}  # they outlive sessions
        self.users = 0
        self._counting = threading.Lock()

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        with self._counting:
            self.users += 1
        try:
            yield
        finally:
            with self._counting:
                self.users -= 1
