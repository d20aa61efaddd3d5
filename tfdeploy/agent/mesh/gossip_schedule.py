"""Whom a minder of a run talks to next, and when. Values and a given clock (monotonic seconds); nothing here opens anything.

News goes to peers at once, to those that do not answer again with growing pauses. With many peers it travels on by those
who heard it, and each minder tells few: n hosts, 4n handshakes instead of n * n. Besides, one random peer is asked now and then.
"""

from __future__ import annotations

import random

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Dict, List, Optional

FEW = 8  # peers: all of them hear of news at once
FANOUT = 4  # of more peers: so many at once, the others slowly
SLOW_S = 2.0  # at first; the longer ago the news, the more likely that who is asked has heard it from others
LATE_S = 0.01  # a peer: with many, each ending after the run's own is no news by itself. They go out together, to one at a time
AT_ONCE = 16  # conversations that we have begun
EXCHANGE_S = 10.0
SELDOM_S = 60.0  # both that and the longest pause, once there is no hurry
_BACKOFF_S = (0.2, 8.0)


class MeshPeer:
    def __init__(self, address: wire.MeshHost, digest: str) -> None:
        self.address = address
        self.digest = digest  # of what it knew when we last heard
        self.last_message: Optional[float] = None
        self.failures = 0
        self.not_before = 0.0
        self.busy = False
        self.tried = 0.0
        self.refused: Optional[float] = None  # since when its host answers that nobody listens,
        self.refused_until = 0.0  # and when it last did


class GossipSchedule:
    """`peers` by host. Each method is called by one thread at a time."""

    def __init__(self, peers: Dict[str, MeshPeer], now: float, unminded_after_s: float = float("inf")) -> None:
        self._peers = peers
        self._refused_s, self._refused_again_s = 2 * unminded_after_s, unminded_after_s / 6
        self._are_few = len(peers) <= FEW
        self.fanout = FEW if self._are_few else FANOUT
        self._at_once = 0  # how many more may be told now
        self._not_before = 0.0  # nobody is told before; 0: now
        self._slow_s = SLOW_S
        self._next_slow = 0.0 if self._are_few else now + SLOW_S
        self._ask_every_s: Optional[float] = None
        self._exchange_s, self.longest_pause_s = min(EXCHANGE_S, unminded_after_s / 2), _BACKOFF_S[1]
        self._next_exchange = now + self._exchange_s * random.random()

    def news(self, late: bool, now: float) -> None:
        """There is something to tell. `late`: only how a task ended after the run's own end."""
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
        """From now on nobody of the concerned goes unasked for longer than that. False: so it was already."""
        changed = self._ask_every_s != every_s
        self._ask_every_s = every_s
        return changed

    def ask_seldom(self) -> None:
        """From now on who does not answer is seldom asked."""
        self._ask_every_s, self._exchange_s, self.longest_pause_s = None, SELDOM_S, SELDOM_S

    def due(self, concerned: List[MeshPeer], digest: str, now: float) -> List[MeshPeer]:
        """Whom to talk to now, of those who still have something running; `digest` of what we know."""
        room = AT_ONCE - self._busy()
        free = [peer for peer in concerned if not peer.busy]
        random.shuffle(free)
        lacking = [peer for peer in free if peer.digest != digest and max(peer.not_before, self._not_before) <= now]
        chosen = lacking[: max(min(room, self._at_once), 0)]
        self._at_once -= len(chosen)
        if chosen:
            self._not_before = 0.0
        if lacking and not chosen and now >= self._next_slow:
            chosen = lacking[:1]
            self._next_slow = now + (0.0 if self._are_few else self._slow_s * random.uniform(0.5, 1.5))
            self._slow_s = min(self._slow_s * 1.5, EXCHANGE_S)
        chosen += [peer for peer in free if self._ask_again_at(peer) <= now and peer not in chosen]
        if now >= self._next_exchange:
            self._next_exchange = now + self._exchange_s * random.uniform(0.8, 1.2)
            chosen += [peer for peer in free if peer not in chosen][:1]
        return chosen[: max(room, 0)]

    def pause_s(self, concerned: List[MeshPeer], digest: str, now: float) -> float:
        """How long nobody is due, if nothing happens. Infinite: whoever is done changes that."""
        if self._busy() >= AT_ONCE:
            return float("inf")
        free = [peer for peer in concerned if not peer.busy]
        news = min((max(peer.not_before, self._not_before) for peer in free if peer.digest != digest), default=float("inf"))
        ask_again = min((self._ask_again_at(peer) for peer in free), default=float("inf"))
        soonest = min(self._next_exchange, ask_again, news if self._at_once > 0 else max(news, self._next_slow))
        return max(0.01, soonest - now)

    def missed(self, peer: MeshPeer, refused: bool, now: float) -> None:
        """It did not answer. `refused`: its host said that nobody listens."""
        peer.failures += 1
        peer.refused, peer.refused_until = ((peer.refused or now), now) if refused else (None, 0.0)
        pause = min(_BACKOFF_S[0] * 2 ** min(peer.failures, 10), self.longest_pause_s)
        peer.not_before = now + pause * random.uniform(0.5, 1.0)

    def _busy(self) -> int:
        return sum(peer.busy for peer in self._peers.values())

    def _ask_again_at(self, peer: MeshPeer) -> float:
        """When it will have gone unasked for too long. Where nobody listens, it is soon asked again: is nobody there at all?"""
        if peer.refused is not None and peer.refused_until - peer.refused < self._refused_s:
            return peer.tried + self._refused_again_s
        if self._ask_every_s is None:
            return float("inf")
        return max(peer.tried, peer.last_message or 0.0) + self._ask_every_s
