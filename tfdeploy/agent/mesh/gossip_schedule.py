"""Decide which peer a minder talks to next, and when. Pure: the caller passes the time (monotonic
seconds), and no connection is opened here.

A change is sent to peers at once, and again with growing pauses to peers that do not answer. With
many peers, a minder sends the change to a few of them, and these pass it on: 4n handshakes for n
hosts instead of n * n. In addition, the minder exchanges states with one random peer every few
seconds.
"""

from __future__ import annotations

import random

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Dict, List, Optional

# A minder with at most FEW peers sends an update to all of them at once. With more peers, it sends
# the update to FANOUT of them at once, and to the others one by one.
FEW = 8
FANOUT = 4
# The first pause between two of the other peers, in seconds. The pause grows, because other hosts
# pass the update on too.
SLOW_S = 2.0
# With many peers, an update after the run's end is delayed by about LATE_S seconds per peer, so
# that the endings of several tasks travel together. It is then sent to one peer at a time.
LATE_S = 0.01
AT_ONCE = 16  # limits the open connections that this minder has started
EXCHANGE_S = 10.0  # the pause between two exchanges with a random peer
SELDOM_S = 60.0  # the same pause, and the longest pause after a failure, after `ask_seldom`
_BACKOFF_S = (0.2, 8.0)  # the first and the longest pause after a failure


class MeshPeer:
    def __init__(self, address: wire.MeshHost, digest: str) -> None:
        self.address = address
        # The digest of the shared state in the peer's last message.
        self.digest = digest
        self.last_message: Optional[float] = None
        self.failures = 0
        self.not_before = 0.0
        self.busy = False
        self.tried = 0.0
        # The times of the first and the last of the connections in a row that the peer's host has
        # refused. `refused` is None if the host did not refuse the last connection.
        self.refused: Optional[float] = None
        self.refused_until = 0.0


class GossipSchedule:
    """The times of all exchanges of one minder. `peers`: by host. The caller holds a lock around
    each call."""

    def __init__(
        self, peers: Dict[str, MeshPeer], now: float, unminded_after_s: float = float("inf")
    ) -> None:
        self._peers = peers
        self._refused_s, self._refused_again_s = 2 * unminded_after_s, unminded_after_s / 6
        self._are_few = len(peers) <= FEW
        self.fanout = FEW if self._are_few else FANOUT
        self._at_once = 0  # the number of peers that may still get the update without a pause
        self._not_before = 0.0  # the earliest time to send the update; 0: now
        self._slow_s = SLOW_S
        self._next_slow = 0.0 if self._are_few else now + SLOW_S
        self._ask_every_s: Optional[float] = None
        self._exchange_s, self.longest_pause_s = (
            min(EXCHANGE_S, unminded_after_s / 2),
            _BACKOFF_S[1],
        )
        self._next_exchange = now + self._exchange_s * random.random()

    def note_change(self, late: bool, now: float) -> None:
        """Schedule an update, because the shared state has changed. `late`: the run was over
        already, and only the ending of a task is new."""
        late = late and not self._are_few
        self._at_once = max(self._at_once, 1 if late else self.fanout)
        self._slow_s = SLOW_S
        if not late:
            self._not_before = 0.0
        elif not self._not_before:
            self._not_before = now + LATE_S * len(self._peers) * random.uniform(0.5, 1.0)
        for peer in self._peers.values():
            peer.failures, peer.not_before = 0, 0.0

    def ask_every(self, every_s: float) -> bool:
        """Ask each peer with running tasks at least once every `every_s` seconds from now on.
        Return False if this interval was set already."""
        changed = self._ask_every_s != every_s
        self._ask_every_s = every_s
        return changed

    def ask_seldom(self) -> None:
        """Talk to peers less often from now on: SELDOM_S becomes the pause between two exchanges,
        and the longest pause after a failure."""
        self._ask_every_s, self._exchange_s, self.longest_pause_s = None, SELDOM_S, SELDOM_S

    def due(self, concerned: List[MeshPeer], digest: str, now: float) -> List[MeshPeer]:
        """Return the peers to connect to now. `concerned`: the peers with running tasks. `digest`:
        the digest of this minder's shared state."""
        room = AT_ONCE - self._busy()
        free = [peer for peer in concerned if not peer.busy]
        random.shuffle(free)
        lacking = [
            peer
            for peer in free
            if peer.digest != digest and max(peer.not_before, self._not_before) <= now
        ]
        chosen = lacking[: max(min(room, self._at_once), 0)]
        self._at_once -= len(chosen)
        if chosen:
            self._not_before = 0.0
        if lacking and not chosen and now >= self._next_slow:
            chosen = lacking[:1]
            self._next_slow = now + (
                0.0 if self._are_few else self._slow_s * random.uniform(0.5, 1.5)
            )
            self._slow_s = min(self._slow_s * 1.5, EXCHANGE_S)
        chosen += [peer for peer in free if self._ask_again_at(peer) <= now and peer not in chosen]
        if now >= self._next_exchange:
            self._next_exchange = now + self._exchange_s * random.uniform(0.8, 1.2)
            chosen += [peer for peer in free if peer not in chosen][:1]
        return chosen[: max(room, 0)]

    def pause_s(self, concerned: List[MeshPeer], digest: str, now: float) -> float:
        """Return the seconds until the next peer is due if nothing changes. Infinity: no peer is
        due before an open connection ends."""
        if self._busy() >= AT_ONCE:
            return float("inf")
        free = [peer for peer in concerned if not peer.busy]
        update_due = min(
            (max(peer.not_before, self._not_before) for peer in free if peer.digest != digest),
            default=float("inf"),
        )
        ask_again = min((self._ask_again_at(peer) for peer in free), default=float("inf"))
        soonest = min(
            self._next_exchange,
            ask_again,
            update_due if self._at_once > 0 else max(update_due, self._next_slow),
        )
        return max(0.01, soonest - now)

    def missed(self, peer: MeshPeer, refused: bool, now: float) -> None:
        """Record that an exchange with the peer failed, and schedule the retry. `refused`: the
        peer's host refused the connection."""
        peer.failures += 1
        peer.refused, peer.refused_until = ((peer.refused or now), now) if refused else (None, 0.0)
        pause = min(_BACKOFF_S[0] * 2 ** min(peer.failures, 10), self.longest_pause_s)
        peer.not_before = now + pause * random.uniform(0.5, 1.0)

    def _busy(self) -> int:
        return sum(peer.busy for peer in self._peers.values())

    def _ask_again_at(self, peer: MeshPeer) -> float:
        """Return the time at which to ask the peer again. A peer that has begun to refuse
        connections is asked soon, because its host may have no minder."""
        if peer.refused is not None and peer.refused_until - peer.refused < self._refused_s:
            return peer.tried + self._refused_again_s
        if self._ask_every_s is None:
            return float("inf")
        return max(peer.tried, peer.last_message or 0.0) + self._ask_every_s
