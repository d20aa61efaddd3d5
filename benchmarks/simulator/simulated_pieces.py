"""Simulate a broadcast piece by piece, as tfdeploy sends it.

In a broadcast, hosts pass data on to each other: parents send it to their children. A parent serves
its children in turns, and sends each child the first piece that the child lacks. Only a few pieces
are in flight to one child, so a slow child does not delay the others. If the parent lacks a piece
too, the child waits for it.
"""

from __future__ import annotations

import heapq

from simulated_hosts import Scenario

from tfdeploy.planning.broadcast.first_plan import PIECE_BYTES

WINDOW = 8  # pieces in flight to one child in one stripe


class Pieces:
    """A model of the transfer that simulates every single piece.

    The pieces of a stripe are sent in order. So a single number says which pieces of a stripe a
    host has.
    """

    def __init__(self, scenario: Scenario, stripes: int) -> None:
        self._scenario, self._hosts, self._stripes = scenario, scenario.hosts, stripes
        self.now, self.crossed_bytes, self.from_here_bytes = 0.0, 0.0, 0.0
        pieces = -(-scenario.total_bytes // PIECE_BYTES)
        self._wanted = [len(range(stripe, pieces, stripes)) for stripe in range(stripes)]
        self._have = [[0] * scenario.hosts + [wanted] for wanted in self._wanted]
        self._sent = [[0] * scenario.hosts for _ in range(stripes)]
        self._feed: list[list[tuple[int, float, int]]] = [
            [(-1, 0.0, 0)] * scenario.hosts for _ in range(stripes)
        ]
        self._children: list[list[tuple[int, int]]] = [[] for _ in range(scenario.hosts + 1)]
        self._is_sending = [False] * (scenario.hosts + 1)
        self._ended: set[int] = set()
        self._down_free = [0.0] * scenario.hosts
        self._line_free: dict[tuple[int, int], float] = {}
        self._completed: dict[int, float] = {}
        # A heap of events (time, host, stripe, parent, how many parents the host has had in the
        # stripe): at that time, a piece from the parent arrives at the host. If the host has got
        # another parent since, the event is ignored. If the stripe is -1, the event is that the
        # host may send its next piece.
        self._events: list[tuple[float, int, int, int, int]] = []
        self._second_s = [PIECE_BYTES / scenario.up(host) for host in range(scenario.hosts + 1)]

    def feed(self, child: int, stripe: int, parent: int, at: float) -> None:
        before, _, number = self._feed[stripe][child]
        if before >= 0:
            self._children[before].remove((child, stripe))
        self._feed[stripe][child] = (parent, at, number + 1)
        self._sent[stripe][child] = self._have[stripe][child]
        self._children[parent].append((child, stripe))
        heapq.heappush(self._events, (at, parent, -1, -1, 0))

    def end(self, host: int) -> None:
        self._ended.add(host)

    def advance(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, host, stripe, parent, number = heapq.heappop(self._events)
            if stripe < 0:
                self._is_sending[host] &= parent < 0
                self._send(host)
            elif self._feed[stripe][host][2] == number and host not in self._ended:
                self._got(host, stripe)
                self._send(parent)
                self._send(host)
        self.now = until

    def have_bytes(self, host: int, stripe: int) -> float:
        share = self._scenario.total_bytes / self._stripes
        return share * self._have[stripe][host] / self._wanted[stripe]

    def completed_at(self, host: int) -> float | None:
        return self._completed.get(host)

    def _got(self, host: int, stripe: int) -> None:
        self._have[stripe][host] += 1
        if all(have[host] >= wanted for have, wanted in zip(self._have, self._wanted, strict=True)):
            self._completed[host] = self.now

    def _send(self, parent: int) -> None:
        """Send the next piece to the next child that can receive one.

        This method is called again each time the parent has sent a piece, and each time it has
        received more pieces.
        """
        if self._is_sending[parent] or parent in self._ended:
            return
        children = self._children[parent]
        for number, (child, stripe) in enumerate(children):
            sent = self._sent[stripe][child]
            _, at, feed = self._feed[stripe][child]
            if (
                at <= self.now
                and self._have[stripe][child] + WINDOW > sent < self._have[stripe][parent]
            ):
                children.append(children.pop(number))
                self._sent[stripe][child] = sent + 1
                self._is_sending[parent] = True
                left = self.now + self._second_s[parent]
                heapq.heappush(self._events, (left, parent, -1, 0, 0))
                heapq.heappush(
                    self._events, (self._arrival(parent, child, left), child, stripe, parent, feed)
                )
                return

    def _arrival(self, parent: int, child: int, left: float) -> float:
        """Return the time at which the child may send the piece on.

        Each link on the way carries one piece after the other.
        """
        scenario, at = self._scenario, left
        sites = (scenario.site(parent), scenario.site(child))
        if sites[0] != sites[1]:
            self.crossed_bytes += PIECE_BYTES
            if scenario.line:
                at = self._line_free[sites] = max(
                    at, self._line_free.get(sites, 0.0) + PIECE_BYTES / scenario.line
                )
        if parent == self._hosts:
            self.from_here_bytes += PIECE_BYTES
        at = self._down_free[child] = max(
            at, self._down_free[child] + PIECE_BYTES / scenario.down(child)
        )
        return at + scenario.rtt_s / 2 + scenario.process_s
