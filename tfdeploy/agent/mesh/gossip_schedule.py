"""Decide to which peer this host's minder connects next, and when. A minder is the agent's daemon
on one host of the run. A peer is the minder of another host.

This module only decides: the caller passes the time (monotonic seconds) and opens the connections.

After a change of the shared state, a minder sends its state to its peers immediately. If a peer
does not answer, the minder tries again with growing pauses. With many peers, it sends the state to
only a few of them, which pass it on. For 1,000 hosts this takes about 4,000 TLS handshakes instead
of a million. In addition, each minder exchanges states with one random peer every few seconds.
"""

from __future__ import annotations

import random

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Dict, List, Optional

# With at most FEW peers, a minder sends a change to all of them immediately. With more peers, it
# sends the change immediately to FANOUT of them, and then to one more peer after each pause (see
# LATER_INTERVAL_S).
FEW = 8
FANOUT = 4
# If a change is not sent to all peers immediately, this is the pause between the first two of the
# others, in seconds. The pauses grow, because by then other hosts pass the change on too.
LATER_INTERVAL_S = 2.0
# When a run with many peers is over, its tasks end one after another. A minder then waits for about
# LATE_S seconds per peer before it sends a change, so that one message contains the endings of
# several tasks. It sends the change to one peer first, and later to the others.
LATE_S = 0.01
# A minder opens at most this many connections at the same time. Connections that peers opened do
# not count.
AT_ONCE = 16
EXCHANGE_INTERVAL_S = 10.0  # the pause between two exchanges with a random peer, in seconds
# After a call of `reduce_connection_rate`, this replaces EXCHANGE_INTERVAL_S and the longest pause
# of _BACKOFF_S.
SELDOM_INTERVAL_S = 60.0
_BACKOFF_S = (0.2, 8.0)  # (first, longest) pause after failed exchanges, in seconds


class PeerContactState:
    def __init__(self, address: wire.MeshHost, digest: str) -> None:
        self.address = address
        # The digest of the state in the peer's last message.
        self.digest = digest
        self.last_message: Optional[float] = None
        self.failures = 0
        self.not_before = 0.0
        self.busy = False
        self.tried = 0.0
        # `refused`: since when the peer's host has refused every connection. None if the last try
        # had another result. `refused_until`: the time of the last refusal.
        self.refused: Optional[float] = None
        self.refused_until = 0.0


class GossipSchedule:
    """Knows when one minder connects to which peer. `peers`: host -> peer. The caller must hold a
    lock around each call."""

    def __init__(
        self, peers: Dict[str, PeerContactState], now: float, unminded_after_s: float = float("inf")
    ) -> None:
        self._peers = peers
        self._refused_s, self._refused_again_s = 2 * unminded_after_s, unminded_after_s / 6
        self._are_few = len(peers) <= FEW
        self.fanout = FEW if self._are_few else FANOUT
        self._at_once = 0  # how many more peers get the change without a pause between them
        self._not_before = 0.0  # the change is not sent before this time
        self._slow_s = LATER_INTERVAL_S
        self._next_slow = 0.0 if self._are_few else now + LATER_INTERVAL_S
        self._ask_every_s = float("inf")
        self._exchange_s = min(EXCHANGE_INTERVAL_S, unminded_after_s / 2)
        self.longest_pause_s = _BACKOFF_S[1]
        self._next_exchange = now + self._exchange_s * random.random()

    def schedule_state_sending(self, is_after_run_end: bool, now: float) -> None:
        """Schedule the sending of the changed state. `is_after_run_end`: True if the run was
        already over before this change, and the change only adds how tasks have ended."""
        is_after_run_end = is_after_run_end and not self._are_few
        self._at_once = max(self._at_once, 1 if is_after_run_end else self.fanout)
        self._slow_s = LATER_INTERVAL_S
        if not is_after_run_end:
            self._not_before = 0.0
        elif not self._not_before:
            self._not_before = now + LATE_S * len(self._peers) * random.uniform(0.5, 1.0)
        for peer in self._peers.values():
            peer.failures, peer.not_before = 0, 0.0

    def set_connect_interval(self, every_s: float) -> bool:
        """From now on, connect to each peer with running tasks at least once in `every_s` seconds.
        Return True if this changes the interval."""
        changed = self._ask_every_s != every_s
        self._ask_every_s = every_s
        return changed

    def reduce_connection_rate(self) -> None:
        """From now on, connect to peers less often: SELDOM_INTERVAL_S is the new pause between two
        exchanges with a random peer, and the new longest pause after a failure."""
        self._ask_every_s = float("inf")
        self._exchange_s = self.longest_pause_s = SELDOM_INTERVAL_S

    def choose_due_peers(
        self, running_peers: List[PeerContactState], digest: str, now: float
    ) -> List[PeerContactState]:
        """Return the peers to which the minder must connect now. `running_peers`: the peers with
        running tasks. `digest`: the digest of this minder's state. A peer with another digest may
        lack something."""
        free_connections = AT_ONCE - self._count_busy_peers()
        free = [peer for peer in running_peers if not peer.busy]
        random.shuffle(free)
        lacking = [
            peer
            for peer in free
            if peer.digest != digest and max(peer.not_before, self._not_before) <= now
        ]
        chosen = lacking[: max(min(free_connections, self._at_once), 0)]
        self._at_once -= len(chosen)
        if chosen:
            self._not_before = 0.0
        if lacking and not chosen and now >= self._next_slow:
            chosen = lacking[:1]
            self._next_slow = now
            if not self._are_few:
                self._next_slow += self._slow_s * random.uniform(0.5, 1.5)
            self._slow_s = min(self._slow_s * 1.5, EXCHANGE_INTERVAL_S)
        chosen += [
            peer for peer in free if self._next_connection_time(peer) <= now and peer not in chosen
        ]
        if now >= self._next_exchange:
            self._next_exchange = now + self._exchange_s * random.uniform(0.8, 1.2)
            chosen += [peer for peer in free if peer not in chosen][:1]
        return chosen[: max(free_connections, 0)]

    def seconds_until_due(
        self, running_peers: List[PeerContactState], digest: str, now: float
    ) -> float:
        """Return after how many seconds the next peer is due if nothing changes meanwhile. Infinity
        means that as many connections as allowed are open, so that one of them must end first."""
        if self._count_busy_peers() >= AT_ONCE:
            return float("inf")
        free = [peer for peer in running_peers if not peer.busy]
        due = [self._next_exchange, *map(self._next_connection_time, free)]
        for peer in free:
            if peer.digest != digest:
                update_due = max(peer.not_before, self._not_before)
                due.append(update_due if self._at_once > 0 else max(update_due, self._next_slow))
        return max(0.01, min(due) - now)

    def record_failure(self, peer: PeerContactState, refused: bool, now: float) -> None:
        """Record that an exchange with the peer has failed, and set the time before which a change
        is not sent to it again. `refused`: True if the peer's host refused the connection."""
        peer.failures += 1
        peer.refused, peer.refused_until = ((peer.refused or now), now) if refused else (None, 0.0)
        pause = min(_BACKOFF_S[0] * 2 ** min(peer.failures, 10), self.longest_pause_s)
        peer.not_before = now + pause * random.uniform(0.5, 1.0)

    def _count_busy_peers(self) -> int:
        return sum(peer.busy for peer in self._peers.values())

    def _next_connection_time(self, peer: PeerContactState) -> float:
        """Return when to connect to the peer even if it lacks nothing. A peer that has begun to
        refuse connections is tried again soon, to find out quickly whether its minder is dead."""
        if peer.refused is not None and peer.refused_until - peer.refused < self._refused_s:
            return peer.tried + self._refused_again_s
        return max(peer.tried, peer.last_message or 0.0) + self._ask_every_s
