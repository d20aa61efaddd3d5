"""Describes a broadcast: its hosts (members) with their progress, and who sends to whom (feeds)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tfdeploy.text.names import group_by_key

CONTROL_MACHINE = ""  # stands for the control machine where a host's name is expected


@dataclass(frozen=True, kw_only=True)
class StripeProgress:
    """A member's progress in one stripe (a share of the pieces that is distributed separately)."""

    have_bytes: int = 0  # bytes that are verified and on the member's disk
    wanted_bytes: int = 0  # all bytes that the member needs
    rate: float | None = None  # bytes received per second, measured lately; None if not known
    starved_s: float = 0.0  # seconds since an incomplete member last received data
    # Data has arrived without interruption for this many seconds, up to now.
    flowing_s: float = math.inf


@dataclass(frozen=True, kw_only=True)
class Member(StripeProgress):
    """One host of the broadcast, with its progress in the whole broadcast."""

    name: str
    site: str = ""  # group of hosts near each other (same subnet, or short round trips)
    serves: bool = True  # False if the member does not listen or other hosts cannot reach it
    # The progress in each stripe. Empty if it is not known, or if there is only one stripe.
    intakes: tuple[StripeProgress, ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.have_bytes >= self.wanted_bytes

    def progress_in(self, stripe: int) -> StripeProgress:
        """Return the member's progress in this stripe, or in total if only the total is known."""
        return self.intakes[stripe] if self.intakes else self


@dataclass(frozen=True)
class Feed:
    """A connection over which the parent (a host) sends the pieces of one stripe to the child.

    A stripe is a share of the pieces that is distributed separately.
    """

    parent: str  # a host's name, or CONTROL_MACHINE
    child: str
    stripe: int = 0


@dataclass(frozen=True)
class SuspectFeed:
    """A connection that delivered nothing or far too little: either of its hosts may be slow."""

    child: str
    parent: str


@dataclass(frozen=True)
class Move:
    """The latest change of a host's parent (sender) for one stripe.

    `have_bytes` and `parent_bytes`: what the host and its new parent had at that time. `starved_s`:
    at that time, the host had received nothing for this many seconds. The new connection is judged
    only after it has transferred enough data.
    """

    child: str
    stripe: int
    have_bytes: int
    parent_bytes: int
    starved_s: float


@dataclass(frozen=True)
class FeedPlan:
    """All connections (feeds) of a broadcast, and the hosts and sites that are known to be slow."""

    # The number of stripes (shares of the pieces). It never changes during a broadcast.
    stripes: int
    # For each stripe, each incomplete host receives over exactly one connection. No host gets data
    # back, directly or indirectly, from a host to which it sends the same stripe.
    feeds: tuple[Feed, ...]
    # Hosts that received or sent much less data than expected. They send to no other host.
    slow_hosts: frozenset[str] = frozenset()
    # Sites with a slow network link. They send to no other site.
    slow_sites: frozenset[str] = frozenset()
    # The slow connections from which `slow_hosts` and `slow_sites` were derived.
    suspect_feeds: tuple[SuspectFeed, ...] = ()
    moves: tuple[Move, ...] = ()

    @cached_property
    def by_child(self) -> dict[str, tuple[Feed, ...]]:
        """Return {host: the connections (feeds) over which this host receives data}."""
        feeds_by_child: dict[str, tuple[Feed, ...]] = {}
        for feed in self.feeds:
            feeds_by_child[feed.child] = (*feeds_by_child.get(feed.child, ()), feed)
        return feeds_by_child


def make_move(child: Member, stripe: int, parent: Member | None) -> Move:
    """Return a Move that records the child's new parent. None stands for the control machine."""
    intake = child.progress_in(stripe)
    return Move(
        child=child.name,
        stripe=stripe,
        have_bytes=intake.have_bytes,
        parent_bytes=parent.progress_in(stripe).have_bytes if parent else 0,
        starved_s=intake.starved_s,
    )


def group_by_site(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return {site: its members}. Sites with a complete member come first.

    Otherwise, a site comes first if its first member comes first in `members`.
    """
    sites = group_by_key((member.site, member) for member in members)
    return dict(
        sorted(sites.items(), key=lambda each: not any(member.is_complete for member in each[1]))
    )
