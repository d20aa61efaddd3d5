"""Enforce time-outs for connections and command starts, and limit how many handshakes run at once.

Time counts only while this process runs and waits for the host. A host fails if it is silent for
`limit_s` seconds, or if it needs more than MOST_LIMITS * `limit_s` seconds in total. One thread
watches all hosts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from tfdeploy.machine.threads import start_thread

TICK_S = 0.1  # seconds between two checks of all hosts
MOST_LIMITS = 3  # a host that sends something may take MOST_LIMITS * `limit_s` seconds
SLOT_S = 1.0  # a host that is silent for this many seconds loses its slot of ConnectionSlots

_lock = threading.Lock()
_running: set[HostTimeout] = set()
_thread: threading.Thread | None = None


class ByteLink(Protocol):
    """A connection that counts the bytes that it has received."""

    received: int  # number of bytes received so far

    def close(self) -> None: ...


class HostTimeout:
    """The time-out of one host.

    `link`: the connection to the host, or None if there is none yet. `over`: True once the host has
    exceeded its time-out. The thread of this module then closes the link.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.link: ByteLink | None = None
        self.over = False
        self._silent_s = 0.0
        self._spent_s = 0.0
        self._received = 0
        self._paused = 0
        self.held_slots: list[Callable[[], None]] = []  # functions that release one slot each

    def now(self) -> float:
        """Return the seconds spent on this host so far.

        An attempt to connect uses this function as its clock, so that pauses do not count.
        """
        return self._spent_s

    @property
    def left_s(self) -> float:
        """Return how many seconds longer the host may be silent before it fails."""
        return max(0.0, self.limit_s - self._silent_s)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count no time within the `with` block.

        After the block, the count of silent seconds begins again at 0.
        """
        with _lock:
            self._paused += 1
        try:
            yield
        finally:
            with _lock:
                self._paused -= 1
                self._silent_s = 0.0

    def add_elapsed(self, elapsed_s: float) -> None:
        """Add `elapsed_s` to the seconds for which the host has been silent.

        `elapsed_s`: seconds since the last call, without the time in which this process was
        suspended. If data has arrived, the count of silent seconds begins again at 0. The caller
        must hold the lock.
        """
        link = self.link
        if self._paused:
            return
        received = link is not None and link.received != self._received
        if link is not None:
            self._received = link.received
        self._silent_s = 0.0 if received else self._silent_s + elapsed_s
        self._spent_s += elapsed_s
        if self._silent_s >= SLOT_S:
            self.release_slots()
        if self._silent_s >= self.limit_s or self._spent_s >= MOST_LIMITS * self.limit_s:
            self.over = True

    def release_slots(self) -> None:
        """Release all slots of the host. The caller must hold the lock."""
        while self.held_slots:
            self.held_slots.pop()()


class ConnectionSlots:
    """Limits how many hosts are inside a `with hold_slot(...)` block at once to `count`.

    The time spent waiting for a slot does not count for the host's time-out. A host that is silent
    for SLOT_S seconds loses its slot.
    """

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextlib.contextmanager
    def hold_slot(self, timeout_to_pause: HostTimeout) -> Iterator[None]:
        """Hold one of the `count` slots during the `with` block. Wait until a slot is free."""
        with timeout_to_pause.paused():
            self._free.acquire()
        with _lock:
            timeout_to_pause.held_slots.append(self._free.release)
        try:
            yield
        finally:
            with _lock:
                timeout_to_pause.release_slots()


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[HostTimeout]:
    """Enforce a time-out of `limit_s` seconds for one host during the `with` block."""
    global _thread
    wait = HostTimeout(limit_s)
    with _lock:
        _running.add(wait)
        if _thread is None or not _thread.is_alive():
            _thread = start_thread(_close_timed_out_links, name="ssh-connect-timeout")
    try:
        yield wait
    finally:
        with _lock:
            _running.discard(wait)


def _close_timed_out_links() -> None:
    """Add up the time of each attempt to connect. Close the links that exceed their time-outs."""
    global _thread
    before = time.monotonic()
    while True:
        time.sleep(TICK_S)
        now = time.monotonic()
        # If much more than TICK_S has passed, this process was suspended or got no CPU. That time
        # does not count.
        elapsed_s = min(now - before, 2 * TICK_S)
        before = now
        with _lock:
            if not _running:
                _thread = None
                return
            for wait in _running:
                wait.add_elapsed(elapsed_s)
            given_up = {wait: wait.link for wait in _running if wait.over and wait.link is not None}
            _running.difference_update(given_up)
        for link in given_up.values():
            # `close` may wait for the end of a proxy command, so another thread calls it.
            start_thread(link.close)
