"""Limit rates with token buckets: how many bytes a second tfdeploy moves on a host, and how many
handshakes a second it answers."""

from __future__ import annotations

import threading
import time

BURST_S = 0.25  # a Limit lets through the bytes of this many seconds at once


class TokenBucket:
    """A bucket that gains `rate` tokens a second and holds at most `most`. `now`: monotonic
    seconds."""

    def __init__(self, rate: float, most: float, now: float) -> None:
        self._rate, self._most, self._tokens, self._at = rate, most, most, now

    def try_acquire(self, now: float) -> bool:
        """Take one token. Return False if there is none."""
        self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def take_on_credit(self, count: int, now: float) -> float:
        """Take `count` tokens, even if the bucket does not hold them yet. Return the seconds until
        it has gained them."""
        self._refill(now)
        self._tokens -= count
        return max(0.0, -self._tokens / self._rate)

    def _refill(self, now: float) -> None:
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
        self._at = now


class Limit:
    """A limit in bytes per second that all threads of one direction share. `rate` 0: no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._bucket = TokenBucket(rate, rate * BURST_S, time.monotonic())

    def wait_for(self, count: int) -> None:
        """Wait until the rate allows `count` more bytes."""
        if not self._rate:
            return
        with self._lock:
            wait_s = self._bucket.take_on_credit(count, time.monotonic())
        if wait_s > 0:
            self.sleep(wait_s)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
