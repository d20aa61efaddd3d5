"""Decides which hosts and sites of a broadcast are slow, given the connections that were too slow.

On each connection, one host (the parent) sends to another (the child). A child that received too
slowly from two parents is slow itself. A parent that sent too slowly to two children is slow. If
two hosts of a site received too slowly from other sites, the network link of their site is slow. If
only one slow connection is known, its child counts as slow until more is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tfdeploy.planning.broadcast.feeds import CONTROL_MACHINE, Member, SuspectFeed


@dataclass(frozen=True)
class Blame:
    """The slow hosts and sites of a broadcast."""

    slow_hosts: frozenset[str]  # hosts that send to no other host from now on
    slow_sites: frozenset[str]  # sites with a slow network link; they send to no other site


def find_slow_hosts_and_sites(
    suspect_feeds: Collection[SuspectFeed], members: Mapping[str, Member]
) -> Blame:
    """Return the slow hosts and sites.

    `suspect_feeds`: the suspect connections, which delivered nothing or too little data.
    The control machine never counts as slow, because it is the source of the data.
    """
    slow_hosts = {
        name
        for name, parents in _group_pairs(
            (suspect.child, suspect.parent) for suspect in suspect_feeds
        ).items()
        if len(parents) > 1
    }
    remaining = [suspect for suspect in suspect_feeds if suspect.child not in slow_hosts]
    across = [
        suspect
        for suspect in remaining
        if suspect.parent != CONTROL_MACHINE
        and members[suspect.child].site != members[suspect.parent].site
    ]
    entered = _group_pairs((members[suspect.child].site, suspect.child) for suspect in across)
    slow_sites = {site for site, children in entered.items() if len(children) > 1}
    slow_hosts |= {
        child for children in entered.values() if len(children) == 1 for child in children
    }
    near = _group_pairs(
        (suspect.parent, suspect.child) for suspect in remaining if suspect not in across
    )
    for parent, children in near.items():
        slow_hosts |= children if len(children) == 1 else {parent} - {CONTROL_MACHINE}
    return Blame(frozenset(slow_hosts), frozenset(slow_sites))


def _group_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, set()).add(value)
    return groups
