"""Simulate a broadcast as a flow of bytes, for cases that are too large to simulate piece by piece.

In a broadcast, hosts pass data on to each other. A large case has 10,000 hosts and 40,000 pieces of
data. Each stripe (a part of the data) flows through a tree of hosts, from a source to its children
and on to their children. Time passes in short steps. In each step, every link is shared among its
users, and parents come before their children. A child lags behind its parent by one hop: the time
that a piece takes on the shared wire, plus the time to check the piece. A test compares the results
with those of `simulated_pieces`.
"""

from __future__ import annotations

from math import ceil

from simulated_hosts import Scenario

from tfdeploy.planning.broadcast.first_plan import PIECE_BYTES

# The time that one link needs for all bytes is divided into STEPS steps, or into STEPS_OF_MANY
# steps if there are at least MANY hosts.
STEPS, STEPS_OF_MANY, MANY = 1000, 400, 2000
LONGEST_STEP_S = 0.25
# The users of a link are the transfers over the link. In each step, a link reserves for each user
# min(share, GROWTH * before + LEAST * share) bytes. `share` is an equal part of the link, and
# `before` is the number of bytes that the user took in the previous step.
GROWTH, LEAST = 1.25, 0.05


class Link:
    """One direction of a host's link during one step.

    The transfers over the link are its users. They share it equally. A user that takes less than
    its share leaves the rest to the other users.
    """

    __slots__ = ("_claims", "_kept", "_left", "_room", "_share", "rate", "users")

    def __init__(self, rate: float) -> None:
        self.rate, self.users = rate, 0
        self._room, self._left, self._share, self._kept, self._claims = 0.0, 0, 0.0, 0.0, 0.0

    def begin(self, step_s: float) -> None:
        self._room, self._left = self.rate * step_s, self.users
        self._share = self._room / max(1, self.users)
        self._kept, self._claims = self._claims, 0.0

    def offer(self, before: float) -> float:
        """Return how many bytes the next user may take in this step.

        `before`: how many bytes this user took in the previous step.
        """
        self._kept -= min(self._share, GROWTH * before + LEAST * self._share)
        fair, free = self._room / max(1, self._left), self._room - max(0.0, self._kept)
        self._left -= 1
        return fair if fair > free else free

    def consume(self, amount: float) -> None:
        self._room -= amount
        self._claims += min(self._share, GROWTH * amount + LEAST * self._share)


class Flow:
    def __init__(self, scenario: Scenario, stripes: int) -> None:
        self._scenario, self._hosts, self._stripes = scenario, scenario.hosts, stripes
        self.now, self.crossed_bytes, self.from_here_bytes = 0.0, 0.0, 0.0
        steps = STEPS if scenario.hosts < MANY else STEPS_OF_MANY
        # Each second is divided into a whole number of steps.
        self._step_s = 1 / ceil(max(steps / scenario.wire_s, 1 / LONGEST_STEP_S))
        self._wanted = scenario.total_bytes / stripes
        self._have = [[0.0] * scenario.hosts + [self._wanted] for _ in range(stripes)]
        # by stripe and host: bytes received in the last step
        self._grown = [[0.0] * (scenario.hosts + 1) for _ in range(stripes)]
        # by stripe: child -> (parent, time from which the parent sends to the child)
        self._feeds: list[dict[int, tuple[int, float]]] = [{} for _ in range(stripes)]
        # by stripe: a list of (parent, its children). A host stands in the list as a parent only
        # after its own parent.
        self._order: list[list[tuple[int, list[int]]]] = []
        self._is_stale = True  # True if `_order` must be computed again
        self._ended: set[int] = set()
        self._completed: dict[int, float] = {}
        self._up = [Link(scenario.up(host)) for host in range(scenario.hosts + 1)]
        self._down = [Link(scenario.down(host)) for host in range(scenario.hosts)]
        self._used: list[Link] = []
        # (site, site) -> bytes that the line between them can still carry in this step
        self._lines: dict[tuple[int, int], float] = {}
        self._turn = 0

    def feed(self, child: int, stripe: int, parent: int, at: float) -> None:
        self._feeds[stripe][child] = (parent, at)
        self._is_stale = True

    def end(self, host: int) -> None:
        self._ended.add(host)
        self._is_stale = True

    def advance(self, until: float) -> None:
        while self.now < until - 1e-9:
            self._step(min(self._step_s, until - self.now))

    def have_bytes(self, host: int, stripe: int) -> float:
        return self._have[stripe][host]

    def completed_at(self, host: int) -> float | None:
        return self._completed.get(host)

    def _step(self, step_s: float) -> None:
        self.now += step_s
        if self._is_stale:
            self._is_stale = False
            self._order = [self._from_the_top(stripe) for stripe in range(self._stripes)]
            self._count_users()
        for link in self._used:
            link.begin(step_s)
        self._lines = {}
        # In each step, another stripe is the first that may use the links.
        self._turn = (self._turn + 1) % self._stripes
        for stripe in (*range(self._turn, self._stripes), *range(self._turn)):
            for parent, children in self._order[stripe]:
                self._share(parent, children, stripe, step_s)

    def _share(self, parent: int, children: list[int], stripe: int, step_s: float) -> None:
        have, grown, feeds, up = (
            self._have[stripe],
            self._grown[stripe],
            self._feeds[stripe],
            self._up[parent],
        )
        known = self._known(parent, stripe, step_s)
        wants = []
        for child in children:
            offered = self._down[child].offer(grown[child])
            wants.append(
                (min(known - have[child], offered) if feeds[child][1] <= self.now else 0.0, child)
            )
        wants.sort()
        for want, child in wants:
            given = max(0.0, min(want, up.offer(grown[child])))
            if self._scenario.sites > 1:
                given = self._over_the_line(parent, child, given, step_s)
            up.consume(given)
            self._down[child].consume(given)
            grown[child] = given
            have[child] += given
            if parent == self._hosts:
                self.from_here_bytes += given
            if have[child] >= self._wanted - 1.0:
                self._finish(child, stripe)

    def _known(self, parent: int, stripe: int, step_s: float) -> float:
        """Return how many bytes the parent can send now.

        These are the bytes that the parent had `hop_s` seconds ago, because a piece needs `hop_s`
        for one hop.
        """
        have = self._have[stripe][parent]
        if parent == self._hosts or have >= self._wanted:
            return have
        up = self._up[parent]
        hop_s = (
            PIECE_BYTES * up.users / up.rate + self._scenario.rtt_s / 2 + self._scenario.process_s
        )
        return have - self._grown[stripe][parent] * hop_s / step_s

    def _over_the_line(self, parent: int, child: int, given: float, step_s: float) -> float:
        sites = (self._scenario.site(parent), self._scenario.site(child))
        if sites[0] == sites[1]:
            return given
        if self._scenario.line:
            room = self._lines.setdefault(sites, self._scenario.line * step_s)
            given = min(given, room)
            self._lines[sites] = room - given
        self.crossed_bytes += given
        return given

    def _finish(self, child: int, stripe: int) -> None:
        self._have[stripe][child] = self._wanted
        self._is_stale = True
        if child not in self._completed and all(have[child] >= self._wanted for have in self._have):
            self._completed[child] = self.now

    def _from_the_top(self, stripe: int) -> list[tuple[int, list[int]]]:
        children: dict[int, list[int]] = {}
        for child, (parent, _) in self._feeds[stripe].items():
            if child not in self._ended and self._have[stripe][child] < self._wanted:
                children.setdefault(parent, []).append(child)
        order, todo = (
            [],
            [parent for parent in children if self._have[stripe][parent] >= self._wanted],
        )
        while todo:
            parent = todo.pop()
            if parent not in self._ended and parent in children:
                order.append((parent, children[parent]))
            todo += children.get(parent, ())
        return order

    def _count_users(self) -> None:
        for link in (*self._up, *self._down):
            link.users = 0
        for order in self._order:
            for parent, children in order:
                self._up[parent].users += len(children)
                for child in children:
                    self._down[child].users += 1
        self._used = [link for link in (*self._up, *self._down) if link.users]
