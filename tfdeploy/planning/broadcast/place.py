"""A parent for each child that has none: of its own site, with room for one more, not behind it, near its old parent.

Only a host that is fed from a source itself can be chosen, so that no cycle can arise.
"""

from __future__ import annotations

from collections import Counter

from tfdeploy.planning.broadcast.feeds import HERE, Intake
from tfdeploy.planning.broadcast.forest import Forest
from tfdeploy.planning.broadcast.judge import Verdict

BEHIND_S = 3.0  # a parent this far behind its child, in time, makes it wait


class Placer:
    def __init__(self, forest: Forest, verdict: Verdict) -> None:
        self._forest, self._verdict = forest, verdict
        self._leaves = {blame.member for blame in verdict.blamed}
        self._children = Counter(parent for _, parent, _ in forest.feeds())
        self._load = Counter(parent for _, parent, child in forest.feeds() if child not in self._leaves)
        self._number = {name: number for number, name in enumerate(forest.members)}

    def place(self, lone: list[tuple[str, int]]) -> None:
        """`lone`: (child, stripe). In each stripe relays first, and of them the one that has most: it may feed the others."""
        sources = [HERE, *(name for name, member in self._forest.members.items() if member.is_complete)]
        for stripe in range(self._forest.stripes):
            children = [child for child, each in lone if each == stripe]
            rooted = self._forest.below(sources, stripe) if children else {}
            for child in sorted(children, key=lambda name: self._turn(name, stripe)):
                parent = self._parent(child, stripe, rooted)
                self._forest.parents[stripe][child] = parent
                self._children[parent] += 1
                self._load[parent] += child not in self._leaves
                rooted.update(self._forest.below([child], stripe))

    def _turn(self, name: str, stripe: int) -> tuple[bool, int, int]:
        able = self._forest.members[name].serves and name not in self._leaves
        return (not able, -self._forest.members[name].intake(stripe).have_bytes, self._number[name])

    def _parent(self, child: str, stripe: int, rooted: dict[str, int]) -> str:
        if self._forest.reaches_nobody(child):
            return HERE
        near = {name: rank for rank, name in enumerate(self._forest.ancestors(child, stripe))}
        able = [name for name in rooted if self._may(name, child, stripe)]
        if not able:
            return HERE
        return min(able, key=lambda name: self._rank(name, child, stripe, near, rooted))

    def _may(self, parent: str, child: str, stripe: int) -> bool:
        if (
            parent in self._leaves
            or not self._forest.may_feed(parent, child)
            or (child, stripe, parent) in self._verdict.not_again
        ):
            return False
        above, member = self._forest.members[parent], self._forest.members[child]
        return above.site == member.site or above.is_complete or above.site not in self._verdict.thin

    def _rank(self, name: str, child: str, stripe: int, near: dict[str, int], rooted: dict[str, int]) -> tuple[float, ...]:
        """The least is the best. A leaf that is far slower than others takes little, so it counts as no child."""
        parent, member = self._forest.members[name], self._forest.members[child]
        behind = _is_behind(member.intake(stripe), parent.intake(stripe)) and not parent.is_complete
        distance = near.get(name, len(near) + 1)
        if child in self._leaves:
            return (parent.site != member.site, behind, self._children[name], rooted[name], distance, self._number[name])
        over = max(0, self._load[name] + 1 - self._forest.stripes)
        below = rooted[name] if over else 0
        return (parent.site != member.site, behind, over, below, distance, self._children[name], self._number[name])


def _is_behind(child: Intake, parent: Intake) -> bool:
    rate = max(parent.rate or 0.0, child.rate or 0.0)
    return child.have_bytes - parent.have_bytes > BEHIND_S * rate
