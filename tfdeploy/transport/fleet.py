"""Open sessions to many hosts, use them in parallel, and close all of them at the end.

This module implements protocols.Fleet. One thread serves each host. Ctrl-C ends only the caller's
wait, not these threads.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.inventory import Host, Hosts
from tfdeploy.transport.protocols import OnDone, Outcomes, Session
from tfdeploy.transport.rsync import running
from tfdeploy.transport.session import SshSession, open_session
from tfdeploy.transport.ssh import descriptors, early
from tfdeploy.transport.ssh.connect import Connector, OnNotice, drop_notice
from tfdeploy.transport.ssh.target import Target

PARALLEL = 32  # by default, this many hosts are served at the same time
# If there are file descriptors for a session to every host, and for this many threads that connect
# to hosts at the same time, all sessions stay open. Otherwise each session is closed after use.
ENOUGH_WORKERS = 8
# For `each(waits=True)`: a host that takes longer than SLOW_AFTER_S seconds no longer counts
# against `parallel`. Nevertheless, at most SLOW_FACTOR * `parallel` hosts are served at once.
SLOW_FACTOR = 8
SLOW_AFTER_S = 2.0
# A connection attempt that failed after at least this many seconds counts as timed out.
TIMEOUT_S = 3.0
# A host that timed out is not dialled again if the next `each` begins within this many seconds.
REPEATED_S = 1.0
DIAL_FACTOR = 4  # at most DIAL_FACTOR * `parallel` hosts are dialled at once
_UNKNOWN_HOST = "the inventory (after --limit and --exclude) has no host of this name"
V = TypeVar("V")


class SshFleet:
    """The sessions of one command. Use the fleet as a context manager, or call `close`.

    Several threads may call `each` at the same time.
    """

    def __init__(
        self,
        parallel: int = PARALLEL,
        operator: str = "",
        bwlimit: int | None = None,
        on_notice: OnNotice = drop_notice,
    ) -> None:
        """Store the settings and raise the limit of file descriptors.

        `operator`: user@machine, for the audit logs of the hosts.
        `bwlimit`: bytes per second for each host. If None, the host's `bwlimit` in the inventory
        applies.
        `on_notice`: called with (host, text), in any thread, while tfdeploy retries a host whose
        sshd temporarily refuses connections from this machine.
        """
        self.on_notice = on_notice
        self._bwlimit = bwlimit
        descriptors.raise_limit()
        self._by = {"operator": operator, "command": os.urandom(4).hex()} if operator else {}
        self._parallel = max(1, parallel)
        self._connector = Connector(self._parallel, lambda host, text: self.on_notice(host, text))
        self._lock = threading.Lock()
        self._entries: dict[str, _HostEntry] = {}
        self._targets: list[Target] = []  # the targets of all sessions, also of lost ones
        # (monotonic start time, monotonic end time) of the last call of `each`.
        self._last_each = (0.0, float("-inf"))
        self._closed = False

    def connect(self, hosts: Hosts) -> Outcomes[Session]:
        return self.each(hosts, lambda session: session, keep_sessions=True)

    def each(
        self,
        hosts: Hosts,
        action: Callable[[Session], V],
        *,
        on_done: OnDone[V] | None = None,
        waits: bool = False,
        keep_sessions: bool = False,
    ) -> Outcomes[V]:
        """Run `action` on every host and return the results in the order of `hosts`.

        `on_done` is called in the caller's thread as soon as the action on a host has ended.
        `waits`: True if the action mostly waits for its host. More hosts are then served at once.
        `keep_sessions`: keep all sessions open afterwards, even if there are few file descriptors.
        """
        began, waiting = time.monotonic(), deque(hosts)
        results: queue.SimpleQueue[tuple[str, V | BaseException]] = queue.SimpleQueue()
        slots = _WorkSlots(self._parallel, SLOW_AFTER_S if waits else None)
        workers, spare = self._choose_threads(hosts, self._parallel * (SLOW_FACTOR if waits else 1))

        def work() -> None:
            with contextlib.suppress(IndexError):
                while True:
                    host = waiting.popleft()
                    results.put((host.name, self._run_action(host, action, slots, retries=waits)))
                    if spare and not keep_sessions:
                        self._close_unused(host)

        for number in range(min(workers, len(hosts))):
            start_thread(work, name=f"fleet-{number}")
        outcomes: Outcomes[V] = {}
        bugs: list[Exception] = []
        try:
            for _ in hosts:
                name, result = results.get()
                if isinstance(result, BaseException) and not isinstance(result, TfdeployError):
                    if not isinstance(result, Exception):
                        raise result
                    # This exception is a bug in tfdeploy. It is raised only after the actions on
                    # the other hosts have ended, because they may succeed.
                    bugs.append(result)
                    continue
                outcomes[name] = result
                if on_done is not None:
                    on_done(name, result)
            for bug in bugs:
                raise bug
        finally:
            waiting.clear()  # after a bug or Ctrl-C, no further host is served
            slots.closed = True
            self._last_each = (began, time.monotonic())
        return {host.name: outcomes[host.name] for host in hosts}

    def _recent_timeout(self, entry: _HostEntry) -> HostUnreachable | None:
        """Return the time-out error of the host if the error is recent, else None.

        The error is recent if it came during the previous call of `each`, and if less than
        REPEATED_S seconds have passed since the end of that call. A command that calls `each` twice
        therefore waits only once for a host that does not answer.
        """
        began, ended = self._last_each
        error, when = entry.timeout or (None, 0.0)
        return error if when >= began and time.monotonic() - ended < REPEATED_S else None

    def connected(self, hosts: Hosts) -> Hosts:
        with self._lock:
            entries = dict(self._entries)
        return tuple(
            host
            for host in hosts
            if (entry := entries.get(host.name)) and entry.session and entry.session.is_alive
        )

    def session(self, host: Host) -> SshSession:
        """Return the session of one host. Open it if it is not open.

        Raises HostUnreachable, ConfigError.
        """
        entry = self._entry(host)
        with entry.lock:
            if entry.session is None or not entry.session.is_alive:
                began = time.monotonic()
                try:
                    limited = (
                        host if self._bwlimit is None else replace(host, bwlimit=self._bwlimit)
                    )
                    entry.session = open_session(limited, self._connector)
                except HostUnreachable as error:
                    entry.timeout = (
                        (error, time.monotonic()) if time.monotonic() - began >= TIMEOUT_S else None
                    )
                    raise
                self._targets.append(entry.session.target)
                entry.session.fences = entry.fences
                entry.session.by = self._by
                if self._closed:
                    entry.session.close()
            return entry.session

    def _entry(self, host: Host) -> _HostEntry:
        """Return the host's entry. Raises HostUnreachable for an unknown host or a closed fleet."""
        if not host.address:
            raise HostUnreachable(
                _UNKNOWN_HOST,
                where=host.name,
                next="use -i to name an inventory that has this host",
                retries=0,
            )
        with self._lock:
            if self._closed:
                raise HostUnreachable("the sessions are closed", where=host.name)
            return self._entries.setdefault(host.name, _HostEntry())

    def close(self) -> None:
        """Close every session. Calls that wait for an answer then raise HostUnreachable.

        A second call does no harm.
        """
        with self._lock:
            self._closed = True
            sessions = [
                entry.session for entry in self._entries.values() if entry.session is not None
            ]
            self._entries.clear()
        running.end_transfers(self._targets)
        for session in sessions:
            session.close()
        self._connector.close()
        early.close_unused()

    def __enter__(self) -> SshFleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _choose_threads(self, hosts: Hosts, most_threads: int) -> tuple[int, bool]:
        """Return (number of threads, True if each session is closed after use).

        A session is closed after use if there are not enough file descriptors to keep all sessions
        open. There are more threads than slots, so that threads which wait for hosts that do not
        answer do not delay the other hosts.
        """
        not_connected = len(hosts) - len(self.connected(hosts))
        threads = most_threads
        if not_connected > self._parallel:
            threads = max(threads, self._parallel * DIAL_FACTOR)
        free = descriptors.count_free()
        while_dialled = (free - not_connected) // descriptors.PER_DIAL
        if while_dialled >= min(threads, not_connected, ENOUGH_WORKERS):
            return max(1, min(threads, while_dialled)) if not_connected else threads, False
        return max(1, min(threads, free // (1 + descriptors.PER_DIAL))), True

    def _close_unused(self, host: Host) -> None:
        """Close the host's session, so that another session can use its descriptor.

        The session stays open if it is in use, or if it holds a lock on the host.
        """
        with self._lock:
            entry = self._entries.get(host.name)
        if entry is None:
            return
        with entry.lock:
            if entry.users == 0 and entry.session is not None and entry.session.is_idle:
                entry.session.close()
                entry.session = None

    def _run_action(
        self, host: Host, action: Callable[[Session], V], slots: _WorkSlots, *, retries: bool
    ) -> V | BaseException:
        """Run `action` on the host's session. Return the result or the raised error."""
        try:
            entry = self._entry(host)
            if not retries and (error := self._recent_timeout(entry)):
                return error
            with entry.count_user():
                session = self.session(host)
                with slots.slot():
                    if slots.closed:
                        raise HostUnreachable(
                            "nothing was done on this host, because the command ended before",
                            where=host.name,
                        )
                    return action(session)
        # An error is returned, because the thread that called `each` must raise it, not this
        # thread.
        except BaseException as error:  # noqa: BLE001
            return error


class _WorkSlots:
    """Limits how many hosts are served at once.

    A host holds a slot while the action runs on it, but not while tfdeploy connects to it.
    `slow_after_s`: after this many seconds, the host's slot is released even if the action still
    runs. If None, the slot is released only at the end of the action.
    """

    def __init__(self, count: int, slow_after_s: float | None) -> None:
        self.closed = False
        self._free, self._slow_after_s = threading.Semaphore(count), slow_after_s

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot during the `with` block, but for at most `slow_after_s` seconds."""
        self._free.acquire()
        # Both the timer and the end of the block call `give_back`. With this lock, only the first
        # call releases the slot.
        returned = threading.Lock()

        def give_back() -> None:
            if returned.acquire(blocking=False):
                self._free.release()

        timer = threading.Timer(self._slow_after_s or 0.0, give_back)
        timer.daemon = True
        if self._slow_after_s is not None:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            give_back()


class _HostEntry:
    """The fleet's data about one host: its session, locks and last time-out."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: SshSession | None = None
        # (error, monotonic time) if the last attempt to connect timed out, else None.
        self.timeout: tuple[HostUnreachable, float] | None = None
        # {job: number of its lock}, shared by all sessions of this host.
        self.fences: dict[str, int] = {}
        self.users = 0
        self._counting = threading.Lock()

    @contextlib.contextmanager
    def count_user(self) -> Iterator[None]:
        """Count this thread as a user of the session during the `with` block."""
        with self._counting:
            self.users += 1
        try:
            yield
        finally:
            with self._counting:
                self.users -= 1
