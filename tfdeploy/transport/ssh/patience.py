"""How long a host may keep us waiting while a session to it is opened, and when it is its turn.

Only time in which this process could run is counted, and of that only what was spent on waiting for the host. A host
is given up when it is silent for its limit, or has not let us in after `TRICKLE` limits. One thread for all attempts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

TICK_S = 0.1
TRICKLE = 3  # limits that a host which keeps talking may take in all
LENT_S = 1.0  # a host that is silent for so long costs nothing: its place goes to another one

_lock = threading.Lock()
_running: set[Wait] = set()
_thread: threading.Thread | None = None


class Talker(Protocol):
    received: int  # bytes so far

    def close(self) -> None: ...


class Wait:
    """The patience with one host. `link`: what it talks over, once there is one; closed when the patience is over."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.link: Talker | None = None
        self.over = False
        self._silent_s = 0.0
        self._spent_s = 0.0
        self._received = 0
        self._paused = 0
        self._lent: list[Callable[[], None]] = []

    def now(self) -> float:
        """A clock that counts only the time that is this host's."""
        return self._spent_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.limit_s - self._silent_s)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What happens meanwhile is not the host's doing."""
        with _lock:
            self._paused += 1
        try:
            yield
        finally:
            with _lock:
                self._paused -= 1
                self._silent_s = 0.0

    def tick(self, elapsed_s: float) -> None:
        """Called under the lock, with the time that has gone by for this process."""
        link = self.link
        if self._paused:
            return
        heard = link is not None and link.received != self._received
        if link is not None:
            self._received = link.received
        self._silent_s = 0.0 if heard else self._silent_s + elapsed_s
        self._spent_s += elapsed_s
        if self._silent_s >= LENT_S:
            self.give_way()
        if self._silent_s >= self.limit_s or self._spent_s >= TRICKLE * self.limit_s:
            self.over = True

    def give_way(self) -> None:
        while self._lent:
            self._lent.pop()()

    def borrow(self, give_back: Callable[[], None]) -> None:
        with _lock:
            self._lent.append(give_back)

    def give_back(self) -> None:
        with _lock:
            self.give_way()


class Places:
    """So many at once. Waiting for a place is not counted, and whoever is silent in one does not keep it."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextlib.contextmanager
    def one(self, wait: Wait) -> Iterator[None]:
        with wait.paused():
            self._free.acquire()
        wait.borrow(self._free.release)
        try:
            yield
        finally:
            wait.give_back()


@contextlib.contextmanager
def waiting(limit_s: float) -> Iterator[Wait]:
    """The patience with one host, which runs out from now on."""
    global _thread
    wait = Wait(limit_s)
    with _lock:
        _running.add(wait)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="ssh-patience", daemon=True)
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
        elapsed_s = min(now - before, 2 * TICK_S)  # the rest of it we did not run: suspended, or short of CPU
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
            threading.Thread(target=link.close, daemon=True).start()  # a proxy command takes a while to end
