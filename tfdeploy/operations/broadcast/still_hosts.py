"""Hosts of a broadcast that stand still. Pieces that a host has are progress; what it says that it received is none.

One that stands still may wait for a parent that lies. After half of its time it is fed from here alone; where it has no piece
of that either, the fault is its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.operations.broadcast.taker import Taker

STILL_S = 120.0  # a host that has had no piece more for so long is out
SLOW_PIECES = 8  # where a rate is limited, it has the time of so many pieces


@dataclass
class StillHosts:
    """`summed_at`: when the last segment of the source was summed: nobody had more to give before."""

    takers: Mapping[str, Taker]
    summed_at: float = field(default_factory=time.monotonic)
    _fed_from_here: dict[str, float] = field(default_factory=dict)  # host -> since when it is to be fed from here alone

    @property
    def patience_s(self) -> float:
        rates = [taker.host.bwlimit for taker in self.takers.values() if taker.host.bwlimit]
        return max(STILL_S, SLOW_PIECES * PIECE_BYTES / min(rates) if rates else 0.0)

    @property
    def shut(self) -> set[tuple[str, str]]:
        """(child, parent) pairs that are not to be: no host feeds one that stands still."""
        return {(child, parent) for child in self._fed_from_here for parent in self.takers}

    def given_up(self, waiting: Iterable[Taker]) -> list[Taker]:
        """Those of the hosts that are waited for whose time is over."""
        now, patience_s, before = time.monotonic(), self.patience_s, self._fed_from_here
        still = [(taker, still_s) for taker in waiting if (still_s := taker.stands_still_s(self.summed_at)) > patience_s / 2]
        self._fed_from_here = {taker.name: before.get(taker.name, now) for taker, _ in still}
        return [
            taker for taker, still_s in still if still_s > patience_s and now - self._fed_from_here[taker.name] > patience_s / 2
        ]
