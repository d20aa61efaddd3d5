"""Compute the progress of one transfer to one host: bytes, rate, remaining time. Pure: this module
reads no clock, but takes the time from the events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tfdeploy.model.events import TransferFields

WINDOW_S = 5.0  # the rate of a running transfer is averaged over this time


@dataclass(eq=False)
class Transfer:
    """One transfer to one host, computed from its events. `what`: "code", "data digits"."""

    what: str
    state: str = "begin"  # begin, moving, done, failed
    sent_bytes: int = 0
    total_bytes: int = 0
    began: float | None = None
    ended: float | None = None
    _samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))

    def apply_event(self, time: float, data: TransferFields) -> None:
        self.state = data.get("state", self.state)
        if self.state == "begin":
            self.began, self.ended, self.sent_bytes = time, None, 0
            self._samples.clear()
        self.sent_bytes = data.get("sent_bytes", self.sent_bytes) or 0
        self.total_bytes = max(data.get("total_bytes", self.total_bytes) or 0, self.sent_bytes)
        self._samples.append((time, self.sent_bytes))
        while time - self._samples[0][0] > WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        if self.state in ("done", "failed"):
            self.ended = time

    @property
    def is_active(self) -> bool:
        return self.state in ("begin", "moving")

    @property
    def bytes_per_s(self) -> float | None:
        """Return bytes per second, or None if this is not known yet. While the transfer runs, the
        rate is that of the last 5 s. Afterwards it is that of the whole transfer."""
        first, sent = self._samples[0] if self._samples else (0.0, 0)
        if not self.is_active and self.began is not None:
            first, sent = self.began, 0
        last = self._samples[-1][0] if self._samples else 0.0
        return (self.sent_bytes - sent) / (last - first) if last > first else None

    @property
    def remaining_s(self) -> float | None:
        """Return the remaining seconds at the present rate, or None if the transfer does not run or
        has no rate yet."""
        rate = self.bytes_per_s
        if not self.is_active or not rate:
            return None
        return (self.total_bytes - self.sent_bytes) / rate


class TransferTotals(NamedTuple):
    """Bytes, bytes a second and seconds of several transfers."""

    sent_bytes: int
    total_bytes: int
    bytes_per_s: float | None
    remaining_s: float | None


def sum_transfers(transfers: Iterable[Transfer]) -> TransferTotals:
    """Return the totals of transfers that run in parallel. The remaining time is not less than that
    of the slowest transfer."""
    every = list(transfers)
    sent, total = sum(t.sent_bytes for t in every), sum(t.total_bytes for t in every)
    rates = [t.bytes_per_s for t in every if t.is_active and t.bytes_per_s]
    rate = sum(rates) if rates else None
    left_s = [t.remaining_s for t in every if t.remaining_s is not None]
    return TransferTotals(
        sent, total, rate, max([(total - sent) / rate, *left_s]) if rate else None
    )
