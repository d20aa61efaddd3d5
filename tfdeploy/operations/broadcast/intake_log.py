"""Measure the rate at which a host receives data, and how long it has received nothing."""

from __future__ import annotations

import time

RATE_S = 3.0  # a rate is measured over at most the last RATE_S seconds
BREAK_S = 1.5  # the flow of data is interrupted if no data arrives for more than BREAK_S seconds
LEAST_S = 1.0  # a rate counts as known only after it was measured for LEAST_S seconds
# The best rate is measured over at least this many seconds. A shorter time would overrate a link,
# because the contents of its buffers arrive at once.
BEST_S = 2.0


class ReceiveRateLog:
    """The numbers of bytes that one host has reported during the last seconds."""

    def __init__(self) -> None:
        self.have_bytes = 0
        # The highest receive rate, in bytes per second, that was measured over at least BEST_S.
        self.best_rate: float | None = None
        self._samples: list[tuple[float, int]] = []
        self._moved_at = time.monotonic()
        self._flowing_since: float | None = None

    def start_idle_timer(self) -> None:
        """Start to measure how long the host has received nothing.

        Call this as soon as other hosts may send to the host.
        """
        self._moved_at = time.monotonic()

    def record_bytes(self, have_bytes: int) -> None:
        """Record how many bytes the host has now."""
        now = time.monotonic()
        if have_bytes != self.have_bytes:
            if self._flowing_since is None or now - self._moved_at > BREAK_S:
                self._flowing_since = now
            self._moved_at = now
        self.have_bytes = have_bytes
        self._samples.append((now, have_bytes))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_S:
            self._samples.pop(0)
        if now - self._samples[0][0] >= BEST_S and self.bytes_per_s:
            self.best_rate = max(self.best_rate or 0.0, self.bytes_per_s)

    @property
    def bytes_per_s(self) -> float | None:
        """Return the bytes received per second; None if this is not known yet."""
        if not self._samples:
            return None
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended - began > LEAST_S else None

    @property
    def idle_s(self) -> float:
        """Return for how many seconds the host has received nothing."""
        return time.monotonic() - self._moved_at

    @property
    def flowing_s(self) -> float:
        """Return the length, in seconds, of the latest period of data without a break."""
        return self._moved_at - self._flowing_since if self._flowing_since is not None else 0.0
