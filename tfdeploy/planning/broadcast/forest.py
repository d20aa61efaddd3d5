"""Holds the feeds of all stripes while a plan changes: one tree of members for each stripe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tfdeploy.planning.broadcast.feeds import Feed, Member

# A host that could not reach this many serving members is fed by the control machine.
REACHES_NOBODY = 3


class Forest:
    """The feeds to incomplete members. `members`: name -> member, without excluded members."""

    def __init__(
        self,
        feeds: Iterable[Feed],
        stripes: int,
        members: Mapping[str, Member],
        shut: frozenset[tuple[str, str]],
    ) -> None:
        self.members, self.stripes, self._shut = members, stripes, shut
        self.parents: list[dict[str, str]] = [{} for _ in range(stripes)]
        for feed in feeds:
            if feed.child in members and not members[feed.child].is_complete:
                self.parents[feed.stripe][feed.child] = feed.parent
        # The parents before this change, including feeds that may no longer continue.
        self.before = [dict(parents) for parents in self.parents]
        self._serving = {name for name, member in members.items() if member.serves}
        self._missed = Counter(child for child, parent in shut if parent in self._serving)

    def may_feed(self, parent: str, child: str) -> bool:
        """Return whether the parent serves and the child can reach it."""
        return parent in self._serving and (child, parent) not in self._shut and parent != child

    def reaches_nobody(self, child: str) -> bool:
        """Return whether the child could not reach so many members that the control machine must
        feed it."""
        return self._missed[child] >= REACHES_NOBODY

    def feeds(self) -> Iterator[tuple[int, str, str]]:
        """Yield (stripe, parent, child)."""
        for stripe, parents in enumerate(self.parents):
            for child, parent in parents.items():
                yield stripe, parent, child

    def cut(self, child: str, stripe: int) -> None:
        """Remove the child's feed in this stripe."""
        self.parents[stripe].pop(child, None)

    def children(self, stripe: int) -> dict[str, list[str]]:
        """Return parent -> its children in this stripe."""
        children_of: dict[str, list[str]] = {}
        for child, parent in self.parents[stripe].items():
            children_of.setdefault(parent, []).append(child)
        return children_of

    def ancestors(self, child: str, stripe: int) -> list[str]:
        """Return the parent before this change, the parent of that parent, and so on."""
        above: list[str] = []
        parent = self.before[stripe].get(child)
        while parent is not None and parent not in above:
            above.append(parent)
            parent = self.before[stripe].get(parent)
        return above

    def below(self, tops: Iterable[str], stripe: int) -> dict[str, int]:
        """Return `tops` and all members fed from them, each with the number of hosts below it."""
        children = self.children(stripe)
        order, todo = [], list(tops)
        while todo:
            name = todo.pop()
            order.append(name)
            todo += children.get(name, ())
        size: dict[str, int] = {}
        for name in reversed(order):
            size[name] = sum(size[child] + 1 for child in children.get(name, ()))
        return size
