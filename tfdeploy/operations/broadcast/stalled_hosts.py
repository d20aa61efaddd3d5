"""Find stalled hosts of a broadcast: hosts to which no further piece of the data arrives.

Only whole pieces count as progress, because a host may claim any number of received bytes. A host
may be stalled because another host sends wrong pieces to it. So after half of the timeout, only
this machine sends to the stalled host. If no piece arrives even then, the stalled host itself is at
fault.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.operations.broadcast.member_session import MemberSession

STALL_TIMEOUT_S = 120.0  # a host that gets no further piece for this many seconds has failed
# If `bwlimit` is low, the timeout is longer: it is at least the time in which this many pieces
# arrive at the rate `bwlimit`.
MIN_PIECES = 8


@dataclass
class StalledHosts:
    """The stalled hosts of a broadcast.

    `hashed_at` is the time, in monotonic seconds, at which the checksums of the newest segment were
    ready. The pieces of that segment could not be sent earlier.
    """

    members: Mapping[str, MemberSession]
    hashed_at: float = field(default_factory=time.monotonic)
    # {stalled host: the time, in monotonic seconds, since which only this machine sends to it}
    _fed_from_control: dict[str, float] = field(default_factory=dict)

    @property
    def timeout_s(self) -> float:
        """Return the timeout: a host has failed if no piece arrives for this many seconds."""
        rates = [member.host.bwlimit for member in self.members.values() if member.host.bwlimit]
        return max(STALL_TIMEOUT_S, MIN_PIECES * PIECE_BYTES / min(rates) if rates else 0.0)

    @property
    def forbidden_pairs(self) -> set[tuple[str, str]]:
        """Return (child, parent) pairs that the planner must not use.

        They are pairs of a stalled host and any other host. Only the control machine may send to a
        stalled host.
        """
        return {(child, parent) for child in self._fed_from_control for parent in self.members}

    def timed_out_members(self, waiting: Iterable[MemberSession]) -> list[MemberSession]:
        """Return the hosts of `waiting` that have been stalled for the whole timeout."""
        now, timeout_s, before = time.monotonic(), self.timeout_s, self._fed_from_control
        stalled = [member for member in waiting if member.stalled_s(self.hashed_at) > timeout_s / 2]
        self._fed_from_control = since = {
            member.name: before.get(member.name, now) for member in stalled
        }
        over = [member for member in stalled if member.stalled_s(self.hashed_at) > timeout_s]
        return [member for member in over if now - since[member.name] > timeout_s / 2]
