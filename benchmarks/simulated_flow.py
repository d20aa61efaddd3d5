"""A broadcast as bytes that flow, for what is too much piece by piece: 10,000 hosts with 40,000 pieces each.

In each short step a parent's uplink is shared between its children, from the sources down. A child is behind its parent by one
hop: the time of a piece on the wire, shared as it is, and of checking it. Held against `simulated_pieces` by its test.
"""

from __future__ import annotations

from simulated_hosts import Scenario

from tfdeploy.planning.broadcast.first_plan import PIECE_BYTES

STEPS = 1000  # of the time that one link needs for everything
LONGEST_STEP_S = 0.1


class Flow:
    def __init__(self, scenario: Scenario, stripes: int) -> None:
        self._scenario, self._hosts, self._stripes = scenario, scenario.hosts, stripes
        self.now, self.crossed_bytes, self.from_here_bytes = 0.0, 0.0, 0.0
        self._step_s = min(LONGEST_STEP_S, scenario.wire_s / STEPS)
        self._wanted = scenario.total_bytes / stripes
        self._have = [[0.0] * scenario.hosts + [self._wanted] for _ in range(stripes)]
        self._grown = [[0.0] * (scenario.hosts + 1) for _ in range(stripes)]  # in the last step
        self._feeds: list[dict[int, tuple[int, float]]] = [{} for _ in range(stripes)]  # child -> parent, from when
        self._order: list[list[tuple[int, list[int]]]] | None = None  # of each stripe: parents with their children, from the top
        self._first = 0  # the stripes take turns to be the first at a shared link
        self._ended: set[int] = set()
        self._completed: dict[int, float] = {}
        self._up = [scenario.up(host) for host in range(scenario.hosts + 1)]
        self._down = [scenario.down(host) for host in range(scenario.hosts)]

    def feed(self, child: int, stripe: int, parent: int, at: float) -> None:
        self._feeds[stripe][child] = (parent, at)
        self._order = None

    def end(self, host: int) -> None:
        self._ended.add(host)
        self._order = None

    def advance(self, until: float) -> None:
        while self.now < until - 1e-9:
            self._step(min(self._step_s, until - self.now))

    def have_bytes(self, host: int, stripe: int) -> float:
        return self._have[stripe][host]

    def completed_at(self, host: int) -> float | None:
        return self._completed.get(host)

    def _step(self, step_s: float) -> None:
        self.now += step_s
        if self._order is None:
            self._order = [self._from_the_top(stripe) for stripe in range(self._stripes)]
            self._crowd = self._children_of_each()
        up = [rate * step_s for rate in self._up]
        down = [rate * step_s for rate in self._down]
        line: dict[tuple[int, int], float] = {}
        left = list(self._crowd)
        first, self._first = self._first, (self._first + 1) % self._stripes
        for stripe in (*range(first, self._stripes), *range(first)):
            for parent, children in self._order[stripe]:
                self._share(parent, children, stripe, step_s, up, down, left, line)

    def _share(
        self,
        parent: int,
        children: list[int],
        stripe: int,
        step_s: float,
        up: list[float],
        down: list[float],
        left: list[int],
        line: dict[tuple[int, int], float],
    ) -> None:
        have, grown, feeds = self._have[stripe], self._grown[stripe], self._feeds[stripe]
        known = have[parent]
        if parent != self._hosts and known < self._wanted:
            hop_s = PIECE_BYTES * self._crowd[parent] / self._up[parent] + self._scenario.rtt_s / 2 + self._scenario.process_s
            known -= grown[parent] * hop_s / step_s
        wants = []
        for child in children:
            want = min(known - have[child], down[child]) if feeds[child][1] <= self.now else 0.0
            wants.append((want, child))
        wants.sort()
        for want, child in wants:  # who wants less than its share leaves the rest to the others
            given = max(0.0, min(want, up[parent] / left[parent]))
            left[parent] -= 1
            given = self._over_the_line(parent, child, given, step_s, line)
            up[parent] -= given
            down[child] -= given
            grown[child] = given
            have[child] += given
            if parent == self._hosts:
                self.from_here_bytes += given
            if have[child] >= self._wanted - 1.0 and child not in self._completed:
                have[child] = self._wanted
                if all(each[child] >= self._wanted for each in self._have):
                    self._completed[child] = self.now

    def _over_the_line(self, parent: int, child: int, given: float, step_s: float, line: dict[tuple[int, int], float]) -> float:
        if self._scenario.sites == 1:
            return given
        sites = (self._scenario.site(parent), self._scenario.site(child))
        if sites[0] == sites[1]:
            return given
        if self._scenario.line:
            room = line.setdefault(sites, self._scenario.line * step_s)
            given = min(given, room)
            line[sites] = room - given
        self.crossed_bytes += given
        return given

    def _from_the_top(self, stripe: int) -> list[tuple[int, list[int]]]:
        children: dict[int, list[int]] = {}
        for child, (parent, _) in self._feeds[stripe].items():
            if child not in self._ended:
                children.setdefault(parent, []).append(child)
        order, todo = [], [parent for parent in children if parent == self._hosts or parent not in self._feeds[stripe]]
        while todo:
            parent = todo.pop()
            if parent not in self._ended and parent in children:
                order.append((parent, children[parent]))
            todo += children.get(parent, ())
        return order

    def _children_of_each(self) -> list[int]:
        crowd = [0] * (self._hosts + 1)
        for order in self._order or ():
            for parent, children in order:
                crowd[parent] += len(children)
        return crowd
