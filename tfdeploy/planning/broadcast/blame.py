"""Decides which members and sites are slow, from the feeds that delivered far too little.

A child that two parents feed too slowly is slow itself. A parent with two such children sends
slowly. If two hosts of a site are fed too slowly from other sites, the link of the site is slow. If
only one slow feed is known, its child counts as slow until more is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tfdeploy.planning.broadcast.feeds import HERE, Doubt, Member


@dataclass(frozen=True)
class Blame:
    """The members and sites that are slow."""

    slow: frozenset[str]  # members that feed nobody from now on
    thin: frozenset[str]  # sites with a slow link; they feed no other site


def blame(doubts: Collection[Doubt], members: Mapping[str, Member]) -> Blame:
    """Return the slow members and sites. The control machine is never blamed: it is the source."""
    slow = {
        name
        for name, parents in _grouped((doubt.child, doubt.parent) for doubt in doubts).items()
        if len(parents) > 1
    }
    left = [doubt for doubt in doubts if doubt.child not in slow]
    across = [
        doubt
        for doubt in left
        if doubt.parent != HERE and members[doubt.child].site != members[doubt.parent].site
    ]
    entered = _grouped((members[doubt.child].site, doubt.child) for doubt in across)
    thin = {site for site, children in entered.items() if len(children) > 1}
    slow |= {child for children in entered.values() if len(children) == 1 for child in children}
    near = _grouped((doubt.parent, doubt.child) for doubt in left if doubt not in across)
    for parent, children in near.items():
        slow |= children if len(children) == 1 else {parent} - {HERE}
    return Blame(frozenset(slow), frozenset(thin))


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for one, other in pairs:
        groups.setdefault(one, set()).add(other)
    return groups
