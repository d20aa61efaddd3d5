"""Limit rates with token buckets: how many bytes per second tfdeploy sends or receives on a host,
and how many TLS handshakes per second it answers."""

from __future__ import annotations

import threading
import time

BURST_S = 0.25  # A limit of N bytes per second lets N * BURST_S bytes pass without a pause.


class TokenBucket:
    """A token bucket that gains `rate` tokens per second and holds at most `capacity`."""

    def __init__(self, rate: float, capacity: float) -> None:
        self._rate, self._capacity, self._tokens = rate, capacity, capacity
        self._refilled_at = time.monotonic()

    def try_acquire(self) -> bool:
        """Take one token. Return False if the bucket is empty."""
        self._refill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def acquire_on_credit(self, count: int) -> float:
        """Take `count` tokens, even if the bucket contains fewer. Return the number of seconds
        until the bucket has gained the missing tokens; the caller must wait so long."""
        self._refill()
        self._tokens -= count
        return max(0.0, -self._tokens / self._rate)

    def _refill(self) -> None:
        now = time.monotonic()
        gained = (now - self._refilled_at) * self._rate
        self._tokens, self._refilled_at = min(self._capacity, self._tokens + gained), now


class RateLimit:
    """A limit in bytes per second for one direction. All threads that send (or receive) share it. A
    `rate` of 0 means no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._bucket = TokenBucket(rate, rate * BURST_S)

    def wait_for_bytes(self, byte_count: int) -> None:
        """Wait until the limit allows that `byte_count` more bytes pass."""
        if not self._rate:
            return
        with self._lock:
            wait_s = self._bucket.acquire_on_credit(byte_count)
        if wait_s > 0:
            time.sleep(wait_s)
