"""Which members hold others up: they receive nothing, or far more slowly than their parents. Such a one becomes a leaf.

Whether a child is slow or its parent, the next move shows: where a second child of one parent is slow too, the parent is to
blame. Where a second host is slow as the first of its site, the line to that site is thin, and nobody is to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from tfdeploy.planning.broadcast.feeds import HERE, Blame, FeedPlan, Intake
from tfdeploy.planning.broadcast.forest import Forest

SLOWER = 0.5  # of what its parent receives: less is far slower,
BEHIND_S = 3.0  # once its parent has so much more than it, in seconds of the parent's rate
SETTLED_S = 4.0  # after a move a child is judged again when it has what it receives in so long at the rate it should have
STARVED_S = 3.0  # a member that has received nothing for so long is starved,
FED_S = 1.5  # and its parent is not, if it has received something since


@dataclass(frozen=True)
class Verdict:
    blamed: tuple[Blame, ...] = ()
    thin: frozenset[str] = frozenset()  # sites
    fruitless: frozenset[tuple[str, int]] = frozenset()  # (child, stripe): its parent gives it nothing


def judge(plan: FeedPlan, forest: Forest) -> Verdict:
    court = _Court(plan, forest)
    for stripe in range(plan.stripes):
        court.judge_starved(stripe)
        court.judge_slow(stripe)
    blamed = tuple(Blame(member, parent) for member, parent in court.blamed.items())
    return Verdict(blamed, frozenset(court.thin), frozenset(court.fruitless))


class _Court:
    def __init__(self, plan: FeedPlan, forest: Forest) -> None:
        self._forest, self._members = forest, forest.members
        self._moves = {(move.child, move.stripe): move for move in plan.moves}
        self._children = Counter(parent for _, parent, _ in forest.feeds())
        self.blamed = {blame.member: blame.parent for blame in plan.blamed if blame.member in forest.members}
        self.thin = set(plan.thin)
        self.fruitless: set[tuple[str, int]] = set()

    def judge_starved(self, stripe: int) -> None:
        for parent, children in self._by_parent(stripe, self._is_starved).items():
            if parent != HERE and len(children) > 1:
                self._blame_parent(parent, stripe)
                continue
            for child in children:
                if child in self.blamed or not self._children[child] or self._others_of_its_site(child, parent):
                    self.fruitless.add((child, stripe))
                else:
                    self._blame(child, parent, stripe)

    def judge_slow(self, stripe: int) -> None:
        usual = self._usual_rate(stripe)
        slow = self._by_parent(stripe, lambda child, parent, stripe: self._is_slow(child, parent, stripe, usual))
        for parent, children in slow.items():
            near = [child for child in children if self._is_near(child, parent)]
            if len(near) > 1:
                self._blame_parent(parent, stripe)
                continue
            for child in children:
                self._blame(child, parent, stripe)

    def _by_parent(self, stripe: int, is_so: Callable[[str, str, int], bool]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for child, parent in self._forest.parents[stripe].items():
            if (parent == HERE or parent in self._members) and is_so(child, parent, stripe):
                found.setdefault(parent, []).append(child)
        return found

    def _is_starved(self, child: str, parent: str, stripe: int) -> bool:
        """Though its parent has something for it."""
        intake, move = self._intake(child, stripe), self._moves.get((child, stripe))
        since = move.starved_s if move and move.have_bytes == intake.have_bytes else 0.0
        if self._has_all(child, stripe) or intake.starved_s < since + max(since, STARVED_S):
            return False
        if parent == HERE or self._has_all(parent, stripe):
            return True
        above = self._intake(parent, stripe)
        return above.starved_s <= FED_S and above.have_bytes > intake.have_bytes

    def _is_slow(self, child: str, parent: str, stripe: int, usual: float | None) -> bool:
        """Though its parent has, for some time, had far more than it."""
        intake = self._intake(child, stripe)
        is_full = parent == HERE or self._has_all(parent, stripe)
        rate = usual if is_full else self._intake(parent, stripe).rate
        if child in self.blamed or not rate or intake.rate is None or self._is_beyond_thin_line(child, parent):
            return False
        due = rate * self._forest.stripes / max(self._forest.stripes, self._children[parent])  # its share of the uplink
        ahead = intake.wanted_bytes if is_full else self._intake(parent, stripe).have_bytes
        move = self._moves.get((child, stripe))
        is_settled = move is None or intake.have_bytes - move.have_bytes >= SETTLED_S * SLOWER * due
        return is_settled and intake.rate < SLOWER * due and ahead - intake.have_bytes >= BEHIND_S * due

    def _blame(self, child: str, parent: str, stripe: int) -> None:
        """The child, if it is the first of its parent's; as the first of its site, if none was before it."""
        if parent != HERE and not self._is_near(child, parent):
            others = self._others_of_its_site(child, parent)
            if not others and self._children[child]:
                self.blamed[child] = parent
                return
            for other in others:
                del self.blamed[other]
            self.thin.add(self._members[child].site)
        elif not any(above == parent and (above == HERE or self._is_near(name, above)) for name, above in self.blamed.items()):
            self.blamed[child] = parent
        elif parent != HERE:
            self._blame_parent(parent, stripe)

    def _blame_parent(self, parent: str, stripe: int) -> None:
        self.blamed = {name: above for name, above in self.blamed.items() if above != parent}
        self.blamed[parent] = self._forest.parents[stripe].get(parent, HERE)

    def _others_of_its_site(self, child: str, parent: str) -> list[str]:
        """Who was to blame before as the first host of the child's site, where the child is that now."""
        if parent == HERE or self._is_near(child, parent):
            return []
        site = self._members[child].site
        entered = [name for name, above in self.blamed.items() if above != HERE and not self._is_near(name, above)]
        return [name for name in entered if self._members[name].site == site]

    def _is_beyond_thin_line(self, child: str, parent: str) -> bool:
        return parent != HERE and not self._is_near(child, parent) and self._members[child].site in self.thin

    def _is_near(self, child: str, parent: str) -> bool:
        return parent in self._members and self._members[child].site == self._members[parent].site

    def _intake(self, name: str, stripe: int) -> Intake:
        return self._members[name].intake(stripe)

    def _has_all(self, name: str, stripe: int) -> bool:
        intake = self._intake(name, stripe)
        return self._members[name].is_complete or intake.have_bytes >= intake.wanted_bytes > 0

    def _usual_rate(self, stripe: int) -> float | None:
        """Of the members that receive: what a child of a parent that has everything is held against."""
        rates = [self._intake(child, stripe).rate for child in self._forest.parents[stripe]]
        return median([rate for rate in rates if rate is not None] or [0.0])
