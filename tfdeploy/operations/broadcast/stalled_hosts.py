"""Find hosts of a broadcast that make no progress. A host makes progress if it has another piece.

Bytes that a host claims to have received are not progress. A host may also be stalled because its
parent sends wrong data. So for the second half of the timeout, only this machine feeds the host. If
no piece arrives even then, the host itself is at fault.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.operations.broadcast.member_session import MemberSession

STALL_TIMEOUT_S = 120.0  # a host that gets no further piece for this time has failed
MIN_PIECES = 8  # a low `bwlimit` extends the timeout to the transfer time of so many pieces


@dataclass
class StalledHosts:
    """The stalled hosts of a broadcast.

    `summed_at` is when the checksums of the newest segment were computed, in monotonic seconds.
    Before that time, no host could send more.
    """

    members: Mapping[str, MemberSession]
    summed_at: float = field(default_factory=time.monotonic)
    _fed_from_here: dict[str, float] = field(default_factory=dict)  # {host: monotonic seconds}

    @property
    def timeout_s(self) -> float:
        """Return after how many seconds without a further piece a host has failed."""
        rates = [member.host.bwlimit for member in self.members.values() if member.host.bwlimit]
        return max(STALL_TIMEOUT_S, MIN_PIECES * PIECE_BYTES / min(rates) if rates else 0.0)

    @property
    def shut(self) -> set[tuple[str, str]]:
        """Return (child, parent) pairs that the planner must not use.

        No other host may feed a stalled host.
        """
        return {(child, parent) for child in self._fed_from_here for parent in self.members}

    def timed_out(self, waiting: Iterable[MemberSession]) -> list[MemberSession]:
        """Return the hosts of `waiting` that have been stalled for the whole timeout."""
        now, timeout_s, before = time.monotonic(), self.timeout_s, self._fed_from_here
        stalled = [member for member in waiting if member.stalled_s(self.summed_at) > timeout_s / 2]
        self._fed_from_here = since = {
            member.name: before.get(member.name, now) for member in stalled
        }
        over = [member for member in stalled if member.stalled_s(self.summed_at) > timeout_s]
        return [member for member in over if now - since[member.name] > timeout_s / 2]
