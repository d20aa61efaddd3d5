"""Decide which peer a minder talks to next, and when. Pure, by a given clock (monotonic seconds);
opens no connection.

A change is sent to peers at once, and again with growing pauses to those that do not answer. With
many peers each minder sends it to a few, which pass it on: 4n handshakes for n hosts instead of n *
n. In addition, one random peer is asked now and then.
"""

from __future__ import annotations

import random

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Dict, List, Optional

FEW = 8  # up to so many peers: news is sent to all of them at once
FANOUT = 4  # with more peers: so many at once, the others slowly
SLOW_S = 2.0  # the first pause between these; it grows, since other hosts pass the news on too
# per peer: with many peers, endings after the run's end are batched, and sent to one peer at a time
LATE_S = 0.01
AT_ONCE = 16  # connections that this minder has opened
EXCHANGE_S = 10.0
SELDOM_S = 60.0  # the exchange interval and the longest pause after `ask_seldom`
_BACKOFF_S = (0.2, 8.0)


class MeshPeer:
    def __init__(self, address: wire.MeshHost, digest: str) -> None:
        self.address = address
        self.digest = digest  # of its shared state in its last message
        self.last_message: Optional[float] = None
        self.failures = 0
        self.not_before = 0.0
        self.busy = False
        self.tried = 0.0
        self.refused: Optional[float] = None  # since when its host has refused connections,
        self.refused_until = 0.0  # and when it last did


class GossipSchedule:
    """The schedule. `peers`: by host. Each method is called by one thread at a time."""

    def __init__(
        self, peers: Dict[str, MeshPeer], now: float, unminded_after_s: float = float("inf")
    ) -> None:
        self._peers = peers
        self._refused_s, self._refused_again_s = 2 * unminded_after_s, unminded_after_s / 6
        self._are_few = len(peers) <= FEW
        self.fanout = FEW if self._are_few else FANOUT
        self._at_once = 0  # to how many more peers news may be sent now
        self._not_before = 0.0  # news is not sent before; 0: at once
        self._slow_s = SLOW_S
        self._next_slow = 0.0 if self._are_few else now + SLOW_S
        self._ask_every_s: Optional[float] = None
        self._exchange_s, self.longest_pause_s = (
            min(EXCHANGE_S, unminded_after_s / 2),
            _BACKOFF_S[1],
        )
        self._next_exchange = now + self._exchange_s * random.random()

    def note_change(self, late: bool, now: float) -> None:
        """Note that the shared state has changed. `late`: only because a task ended after the run's
        end."""
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
        """Ask each peer with running tasks at least so often from now on. Return False if that was
        set already."""
        changed = self._ask_every_s != every_s
        self._ask_every_s = every_s
        return changed

    def ask_seldom(self) -> None:
        """Ask peers that do not answer less often from now on."""
        self._ask_every_s, self._exchange_s, self.longest_pause_s = None, SELDOM_S, SELDOM_S

    def due(self, concerned: List[MeshPeer], digest: str, now: float) -> List[MeshPeer]:
        """Return the peers to talk to now. `concerned`: those with running tasks. `digest`: of our
        shared state."""
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
        """Return the seconds until the next peer is due if nothing happens; infinity: not before a
        connection ends."""
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
        """Note that the peer did not answer. `refused`: its host refused the connection."""
        peer.failures += 1
        peer.refused, peer.refused_until = ((peer.refused or now), now) if refused else (None, 0.0)
        pause = min(_BACKOFF_S[0] * 2 ** min(peer.failures, 10), self.longest_pause_s)
        peer.not_before = now + pause * random.uniform(0.5, 1.0)

    def _busy(self) -> int:
        return sum(peer.busy for peer in self._peers.values())

    def _ask_again_at(self, peer: MeshPeer) -> float:
        """Return when the peer must be asked again. A peer that refuses connections is asked soon,
        because its host may have no minder."""
        if peer.refused is not None and peer.refused_until - peer.refused < self._refused_s:
            return peer.tried + self._refused_again_s
        if self._ask_every_s is None:
            return float("inf")
        return max(peer.tried, peer.last_message or 0.0) + self._ask_every_s
