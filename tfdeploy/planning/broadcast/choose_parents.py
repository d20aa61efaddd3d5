"""Chooses a parent for each host of a broadcast that has no parent.

A host's parent is the host that sends data to it. A good parent is in the same site as the child,
has capacity for one more child, has at least as much data as the child, and was an ancestor of the
child before. A parent must itself get its data from a source, directly or through others, so no
cycle can arise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median

from tfdeploy.planning.broadcast.feeds import CONTROL_MACHINE, StripeProgress
from tfdeploy.planning.broadcast.forest import Forest
from tfdeploy.planning.broadcast.judge import Verdict

# A parent counts as behind its child if the parent has much less data than the child. The
# difference must exceed BEHIND_BYTES, and also what the faster host receives in BEHIND_S seconds.
BEHIND_S = 3.0
BEHIND_BYTES = 4 << 20
# A parent is crowded if its load exceeds its capacity by more than this. One child that receives at
# the usual rate is a load of 1.
CROWDED = 0.05


def choose_parents(forest: Forest, verdict: Verdict, without_parent: list[tuple[str, int]]) -> None:
    """Choose a parent for each (child, stripe) in `without_parent`.

    If a parent has too many children, some of its children are moved to another parent.
    """
    children = Counter(parent for _, parent, _ in forest.feeds())
    if not without_parent and max(children.values(), default=0) <= forest.stripes:
        return
    chooser = _ParentChooser(forest, verdict)
    for stripe in range(forest.stripes):
        chooser.attach_all([child for child, each in without_parent if each == stripe], stripe)
        chooser.relieve_crowded_parents(stripe)


class _ParentChooser:
    """Chooses a parent for each child, and keeps account of the load of each parent."""

    def __init__(self, forest: Forest, verdict: Verdict) -> None:
        self._forest, self._members, self._verdict = forest, forest.members, verdict
        self._relays = {
            name
            for name, member in forest.members.items()
            if member.serves and name not in verdict.blame.slow_hosts
        }
        self._sources = [
            CONTROL_MACHINE,
            *(name for name, member in forest.members.items() if member.is_complete),
        ]
        self._number = {name: number for number, name in enumerate(forest.members)}
        self._usual = _median_rate_by_stripe(forest)
        self._rooted: list[dict[str, int]] = [{}] * forest.stripes
        self._children: Counter[str] = Counter()
        # {parent: its load}. A child that receives at the usual rate counts as 1.
        self._load: defaultdict[str, float] = defaultdict(float)
        for stripe, parent, child in forest.feeds():
            self._count_child(parent, child, stripe, 1)

    def attach_all(self, children: list[str], stripe: int) -> None:
        """Choose a parent for each of the children.

        Children that can send data to others get their parents first, in the order of the data that
        they have, the largest amount first. These hosts can then become parents of the others.
        """
        if children:
            self._rooted = [
                self._forest.count_descendants(self._sources, each)
                for each in range(self._forest.stripes)
            ]
        rooted = self._rooted[stripe]
        by_data = sorted(children, key=lambda name: -self._progress(name, stripe).have_bytes)
        for child in sorted(by_data, key=lambda name: name not in self._relays):
            self._attach(child, self._best_parent(child, stripe, rooted), stripe)
            rooted.update(self._forest.count_descendants([child], stripe))

    def relieve_crowded_parents(self, stripe: int) -> None:
        """Move children from overloaded parents to hosts of the same site that have free capacity.

        A moved child may have to wait until its new parent has the data, but the whole broadcast
        takes no longer. A child that itself sends to others is moved only to a complete host.
        """
        crowded = [
            child
            for child, parent in self._forest.parents[stripe].items()
            if self._is_crowded(parent) and not self._forest.is_isolated(child)
        ]
        rooted = self._forest.count_descendants(self._sources, stripe) if crowded else {}
        room = [
            name
            for name in rooted
            if name in self._relays and self._load[name] < self._forest.stripes
        ]
        for child in sorted(crowded, key=lambda name: rooted.get(name, 0)) if room else ():
            able = [
                name
                for name in room
                if self._can_take_over(name, child, stripe, rooted.get(child, 0))
            ]
            if able and self._is_crowded(self._forest.parents[stripe][child]):
                parent = min(able, key=lambda name: self._load[name])
                self._attach(child, parent, stripe)
                # The new parent now has a descendant. Without this count, a later step might make
                # the new parent a descendant of its own child.
                rooted[parent] += 1

    def _is_crowded(self, parent: str) -> bool:
        return self._load[parent] > self._forest.stripes + CROWDED

    def _can_take_over(self, parent: str, child: str, stripe: int, descendants: int) -> bool:
        has_room = self._load[parent] + self._load_on_parent(child, stripe) <= self._forest.stripes
        is_near = self._members[parent].site == self._members[child].site
        is_above = self._members[parent].is_complete or not descendants
        return has_room and is_near and is_above and self._may_send(parent, child, stripe)

    def _progress(self, name: str, stripe: int) -> StripeProgress:
        return self._members[name].progress_in(stripe)

    def _load_on_parent(self, child: str, stripe: int) -> float:
        """Return the load that the child puts on its parent: 1, or less for a slow child.

        For a slow child, it is the child's rate divided by the usual rate, but at most 1.
        """
        if child not in self._verdict.blame.slow_hosts or not self._usual[stripe]:
            return 1.0
        return min(1.0, (self._progress(child, stripe).rate or 0.0) / self._usual[stripe])

    def _count_child(self, parent: str, child: str, stripe: int, change: int) -> None:
        self._children[parent] += change
        self._load[parent] += change * self._load_on_parent(child, stripe)

    def _attach(self, child: str, parent: str, stripe: int) -> None:
        before = self._forest.parents[stripe].get(child)
        if before is not None:
            self._count_child(before, child, stripe, -1)
        self._count_child(parent, child, stripe, 1)
        self._forest.parents[stripe][child] = parent

    def _best_parent(self, child: str, stripe: int, rooted_descendants: dict[str, int]) -> str:
        if self._forest.is_isolated(child):
            return CONTROL_MACHINE
        able = [name for name in rooted_descendants if self._may_send(name, child, stripe)]
        ancestor_ranks = {
            name: rank for rank, name in enumerate(self._forest.former_ancestors(child, stripe))
        }
        return min(
            able,
            key=lambda name: self._parent_sort_key(name, child, stripe, ancestor_ranks),
            default=CONTROL_MACHINE,
        )

    def _may_send(self, parent: str, child: str, stripe: int) -> bool:
        if parent not in self._relays or not self._forest.can_send(parent, child):
            return False
        before = self._forest.former_parents[stripe].get(child)
        if parent == before and (child, stripe) in self._verdict.needs_new_parent:
            return False
        parent_member, site = self._members[parent], self._members[child].site
        return (
            parent_member.site == site
            or parent_member.is_complete
            or parent_member.site not in self._verdict.blame.slow_sites
        )

    def _parent_sort_key(
        self, parent: str, child: str, stripe: int, ancestor_ranks: dict[str, int]
    ) -> tuple[float, ...]:
        """Return the sort key of a possible parent. The lowest key is the best parent.

        If no host has free capacity, a host with few descendants is best, because all descendants
        of an overloaded host receive more slowly.
        """
        is_far = self._members[parent].site != self._members[child].site
        excess = self._load[parent] + self._load_on_parent(child, stripe) - self._forest.stripes
        descendants = sum(each.get(parent, 0) for each in self._rooted)
        crowd = (excess, descendants) if excess > CROWDED else (0.0, 0)
        return (
            is_far,
            self._has_less_data(parent, child, stripe),
            *crowd,
            ancestor_ranks.get(parent, len(ancestor_ranks)),
            self._children[parent],
            self._number[parent],
        )

    def _has_less_data(self, parent: str, child: str, stripe: int) -> bool:
        if self._members[parent].is_complete:
            return False
        of_parent, progress = self._progress(parent, stripe), self._progress(child, stripe)
        rate = max(of_parent.rate or 0.0, progress.rate or 0.0)
        return progress.have_bytes - of_parent.have_bytes > max(BEHIND_BYTES, BEHIND_S * rate)


def _median_rate_by_stripe(forest: Forest) -> list[float]:
    """Return one number for each stripe: the median rate of the members that have a parent."""
    rates = [
        [forest.members[child].progress_in(stripe).rate or 0.0 for child in each]
        for stripe, each in enumerate(forest.parents)
    ]
    return [median(each) if each else 0.0 for each in rates]
