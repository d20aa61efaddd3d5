"""How much a host has of something, over the last seconds: its rate, and since when nothing
came."""

from __future__ import annotations

import time

RATE_S = 3.0  # over which a rate is measured
BREAK_S = 1.5  # nothing for so long is a break
LEAST_S = 1.0  # a shorter time says nothing about a rate
BEST_S = 2.0  # nor does it about what a link can do: what its buffers hold comes at once


class IntakeLog:
    def __init__(self) -> None:
        self.have_bytes = 0
        self.best_rate: float | None = None  # over some seconds
        self._samples: list[tuple[float, int]] = []
        self._moved_at = time.monotonic()
        self._flowing_since: float | None = None

    def begin(self) -> None:
        """From now on something may come."""
        self._moved_at = time.monotonic()

    def record(self, have_bytes: int) -> None:
        now = time.monotonic()
        if have_bytes != self.have_bytes:
            if self._flowing_since is None or now - self._moved_at > BREAK_S:
                self._flowing_since = now
            self._moved_at = now
        self.have_bytes = have_bytes
        self._samples.append((now, have_bytes))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_S:
            self._samples.pop(0)
        if now - self._samples[0][0] >= BEST_S and self.rate:
            self.best_rate = max(self.best_rate or 0.0, self.rate)

    @property
    def rate(self) -> float | None:
        """Bytes a second; None: not known yet."""
        if not self._samples:
            return None
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended - began > LEAST_S else None

    @property
    def still_s(self) -> float:
        """For how long nothing has come."""
        return time.monotonic() - self._moved_at

    @property
    def flowing_s(self) -> float:
        """For how long something has come without a break, until the last time that it did."""
        return self._moved_at - self._flowing_since if self._flowing_since is not None else 0.0
