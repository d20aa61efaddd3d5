"""Holds the trees of a broadcast while its plan is changed: each child's parent in each stripe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tfdeploy.planning.broadcast.feeds import Feed, Member
from tfdeploy.text.names import group_by_key

# A host that could not connect to this many other hosts gets its data from the control machine.
REACHES_NOBODY = 3


class Forest:
    """The parent of each incomplete member, for each stripe of a broadcast.

    The parent of a member is the host that sends data to it. `members`: {name: member}.
    `forbidden_pairs`: pairs (child, parent) in which the child could not connect to the parent.
    """

    def __init__(
        self,
        feeds: Iterable[Feed],
        stripe_count: int,
        members: Mapping[str, Member],
        forbidden_pairs: frozenset[tuple[str, str]],
    ) -> None:
        self.members, self.stripes, self._shut = members, stripe_count, forbidden_pairs
        self.parents: list[dict[str, str]] = [{} for _ in range(stripe_count)]
        for feed in feeds:
            if feed.child in members and not members[feed.child].is_complete:
                self.parents[feed.stripe][feed.child] = feed.parent
        # The parents before the plan was changed, including hosts that may no longer send.
        self.former_parents = [dict(parents) for parents in self.parents]
        self._serving = {name for name, member in members.items() if member.serves}
        self._missed = Counter(
            child for child, parent in forbidden_pairs if parent in self._serving
        )

    def can_send(self, parent: str, child: str) -> bool:
        """Return whether the child can connect to the parent, and the parent can send data."""
        return parent in self._serving and (child, parent) not in self._shut and parent != child

    def is_isolated(self, child: str) -> bool:
        """Return whether the child could not connect to REACHES_NOBODY or more hosts.

        Such a child gets its data from the control machine.
        """
        return self._missed[child] >= REACHES_NOBODY

    def feeds(self) -> Iterator[tuple[int, str, str]]:
        """Yield (stripe, parent, child) for each connection."""
        for stripe, parents in enumerate(self.parents):
            for child, parent in parents.items():
                yield stripe, parent, child

    def children(self, stripe: int) -> dict[str, list[str]]:
        """Return {parent: the hosts to which this parent sends the stripe}."""
        return group_by_key((parent, child) for child, parent in self.parents[stripe].items())

    def former_ancestors(self, child: str, stripe: int) -> list[str]:
        """Return the child's former parent, the former parent of that host, and so on."""
        ancestors: list[str] = []
        parent = self.former_parents[stripe].get(child)
        while parent is not None and parent not in ancestors:
            ancestors.append(parent)
            parent = self.former_parents[stripe].get(parent)
        return ancestors

    def count_descendants(self, tops: Iterable[str], stripe: int) -> dict[str, int]:
        """Return {host: number of its descendants}, for each host of `tops` and its descendants."""
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
