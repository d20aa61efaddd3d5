"""The time-out of a host that is connected to, or starts a command; the bound on handshakes at
once.

It counts only the time that this process ran and waited for the host. A host fails when it is
silent for its limit, or has not finished the login after `MOST_LIMITS` limits. One thread watches
all attempts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

TICK_S = 0.1
MOST_LIMITS = 3  # how many times its limit a host may take in all, as long as it sends something
SLOT_S = 1.0  # a host that is silent for so long gives its slot to another one

_lock = threading.Lock()
_running: set[Wait] = set()
_thread: threading.Thread | None = None


class ByteLink(Protocol):
    received: int  # bytes so far

    def close(self) -> None: ...


class Wait:
    """The time-out of one host. `link`: its connection, once there is one; closed when the time is
    `over`."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.link: ByteLink | None = None
        self.over = False
        self._silent_s = 0.0
        self._spent_s = 0.0
        self._received = 0
        self._paused = 0
        self._held_slots: list[Callable[[], None]] = []

    def now(self) -> float:
        """Seconds that were spent on this host: the clock of its attempts."""
        return self._spent_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.limit_s - self._silent_s)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block no time is counted."""
        with _lock:
            self._paused += 1
        try:
            yield
        finally:
            with _lock:
                self._paused -= 1
                self._silent_s = 0.0

    def tick(self, elapsed_s: float) -> None:
        """Called under the lock, with the seconds that this process ran since the last tick."""
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
        while self._held_slots:
            self._held_slots.pop()()

    def hold_slot(self, release: Callable[[], None]) -> None:
        with _lock:
            self._held_slots.append(release)

    def return_slots(self) -> None:
        with _lock:
            self.release_slots()


class Slots:
    """At most `count` at once. Waiting for a slot is not counted, and a silent host loses its
    slot."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextlib.contextmanager
    def slot(self, wait: Wait) -> Iterator[None]:
        with wait.paused():
            self._free.acquire()
        wait.hold_slot(self._free.release)
        try:
            yield
        finally:
            wait.return_slots()


@contextlib.contextmanager
def waiting(limit_s: float) -> Iterator[Wait]:
    """Starts the time-out of one host; it ends with the block."""
    global _thread
    wait = Wait(limit_s)
    with _lock:
        _running.add(wait)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="ssh-connect-timeout", daemon=True)
            _thread.start()
    try:
        yield wait
    finally:
        with _lock:
            _running.discard(wait)


def _run() -> None:
    global _thread
    before = time.monotonic()
    while True:
        time.sleep(TICK_S)
        now = time.monotonic()
        # the rest of it this process did not run: suspended, or short of CPU
        elapsed_s = min(now - before, 2 * TICK_S)
        before = now
        with _lock:
            if not _running:
                _thread = None
                return
            for wait in _running:
                wait.tick(elapsed_s)
            given_up = {wait: wait.link for wait in _running if wait.over and wait.link is not None}
            _running.difference_update(given_up)
        for link in given_up.values():
            # a proxy command takes a while to end
            threading.Thread(target=link.close, daemon=True).start()
