"""Holds what tfdeploy moves on a host to so many bytes a second."""

from __future__ import annotations

import threading
import time

BURST_S = 0.25


class Limit:
    """A token bucket that all threads of one direction share. `rate` 0: no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0  # monotonic: when what was taken so far has gone through

    def take(self, count: int) -> None:
        """Waits until so many bytes more are within the rate."""
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - BURST_S) + count / self._rate
            wait_s = self._free_at - now
        if wait_s > 0:
            self.sleep(wait_s)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
