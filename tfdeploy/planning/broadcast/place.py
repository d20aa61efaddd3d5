"""A parent for each child that has none: of its own site, with room for one more, not behind it, near its old parent.

Only a host that is fed from a source itself is chosen, so that no cycle can arise.
"""

from __future__ import annotations

from collections import Counter

from tfdeploy.planning.broadcast.feeds import HERE
from tfdeploy.planning.broadcast.forest import Forest
from tfdeploy.planning.broadcast.judge import Verdict

BEHIND_S = 3.0  # a parent so far behind its child, in seconds of their rate, makes it wait,
BEHIND_BYTES = 4 << 20  # but not one so near


def place(forest: Forest, verdict: Verdict, lone: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """`lone`: (child, stripe) without a parent. All whose parent was chosen, or changed because it had too many children."""
    placer = _Placer(forest, verdict)
    moved = []
    for stripe in range(forest.stripes):
        moved += placer.place([child for child, each in lone if each == stripe], stripe)
    return [*lone, *(each for each in moved if each not in set(lone))]


class _Placer:
    def __init__(self, forest: Forest, verdict: Verdict) -> None:
        self._forest, self._verdict = forest, verdict
        self._slow = verdict.blame.slow
        self._relays = {name for name, member in forest.members.items() if member.serves and name not in self._slow}
        self._children = Counter(parent for _, parent, _ in forest.feeds())
        self._slow_children = Counter(parent for _, parent, child in forest.feeds() if child in self._slow)
        self._number = {name: number for number, name in enumerate(forest.members)}

    def place(self, children: list[str], stripe: int) -> list[tuple[str, int]]:
        """Of several first a relay, and first the one that has most: it may feed the others."""
        sources = [HERE, *(name for name, member in self._forest.members.items() if member.is_complete)]
        rooted = self._forest.below(sources, stripe)
        for child in sorted(children, key=lambda name: self._turn(name, stripe)):
            self._attach(child, self._parent(child, stripe, rooted), stripe)
            rooted.update(self._forest.below([child], stripe))
        return self._relieve(stripe, rooted)

    def _turn(self, name: str, stripe: int) -> tuple[bool, int, int]:
        return (name not in self._relays, -self._forest.members[name].intake(stripe).have_bytes, self._number[name])

    def _attach(self, child: str, parent: str, stripe: int) -> None:
        before = self._forest.parents[stripe].get(child)
        for name, change in ((before, -1), (parent, 1)):
            if name is not None:
                self._children[name] += change
                self._slow_children[name] += change * (child in self._slow)
        self._forest.parents[stripe][child] = parent

    def _parent(self, child: str, stripe: int, rooted: dict[str, int]) -> str:
        if self._forest.reaches_nobody(child):
            return HERE
        able = [name for name in rooted if self._may(name, child, stripe)]
        near = {name: rank for rank, name in enumerate(self._forest.ancestors(child, stripe))}
        return min(able, key=lambda name: self._rank(name, child, stripe, near, rooted)) if able else HERE

    def _may(self, parent: str, child: str, stripe: int) -> bool:
        if parent not in self._relays or not self._forest.may_feed(parent, child):
            return False
        if (child, stripe) in self._verdict.fruitless and self._forest.before[stripe].get(child) == parent:
            return False
        above, site = self._forest.members[parent], self._forest.members[child].site
        return above.site == site or above.is_complete or above.site not in self._verdict.blame.thin

    def _rank(self, name: str, child: str, stripe: int, near: dict[str, int], rooted: dict[str, int]) -> tuple[float, ...]:
        """The least is the best. A child that is far slower than others takes little of its parent's uplink."""
        is_far = self._forest.members[name].site != self._forest.members[child].site
        is_slow = child in self._slow
        children = self._children[name] - (0 if is_slow else self._slow_children[name])
        over = max(0, children + 1 - self._forest.stripes)
        distance = near.get(name, len(near)) if not is_slow else 0
        below = rooted[name] if over else 0  # so many more get less
        return (is_far, self._is_behind(name, child, stripe), over, below, distance, self._children[name], self._number[name])

    def _is_behind(self, parent: str, child: str, stripe: int) -> bool:
        if self._forest.members[parent].is_complete:
            return False
        above, intake = self._forest.members[parent].intake(stripe), self._forest.members[child].intake(stripe)
        return intake.have_bytes - above.have_bytes > max(BEHIND_BYTES, BEHIND_S * max(above.rate or 0.0, intake.rate or 0.0))

    def _relieve(self, stripe: int, rooted: dict[str, int]) -> list[tuple[str, int]]:
        """Leaves of a parent that has too many children go to hosts of the same site that have room, even if they wait there:
        nothing is late that has come before all is complete."""
        room = [name for name in rooted if name in self._relays and self._has_room(name)]
        moved = []
        for child, parent in list(self._forest.parents[stripe].items()) if room else ():
            is_crowded = self._children[parent] > self._forest.stripes
            if is_crowded and not self._children[child] and not self._forest.reaches_nobody(child):
                site = self._forest.members[child].site
                able = [name for name in room if self._forest.members[name].site == site and self._may(name, child, stripe)]
                if able:
                    self._attach(child, able[0], stripe)
                    moved.append((child, stripe))
                    room = [name for name in room if self._has_room(name)]
        return moved

    def _has_room(self, name: str) -> bool:
        return self._children[name] - self._slow_children[name] < self._forest.stripes
