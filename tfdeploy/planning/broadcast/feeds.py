"""Describes a broadcast: its members with their progress, and the feeds between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

HERE = ""  # the control machine as a parent
PIECE_BYTES = 256 << 10  # size of one piece, the unit of transfer


@dataclass(frozen=True)
class Intake:
    """The progress of a member in one stripe. `rate` is in bytes a second.

    `starved_s`: seconds since it last received data. `flowing_s`: seconds since it began to receive
    without a break.
    """

    have_bytes: int = 0
    wanted_bytes: int = 0
    rate: float | None = None
    starved_s: float = 0.0
    flowing_s: float = math.inf


@dataclass(frozen=True)
class Member:
    """One host of the broadcast, with its progress."""

    name: str
    site: str = ""  # hosts of one site are near each other (same subnet, or short round trips)
    serves: bool = True  # it listens, and a host could reach it or no host has tried yet
    have_bytes: int = 0  # bytes of the broadcast that are verified and on its disk
    wanted_bytes: int = 0  # all bytes of the broadcast that it needs
    rate: float | None = None  # bytes a second received over the last seconds
    starved_s: float = 0.0  # seconds since it last received data, while it is incomplete
    flowing_s: float = math.inf  # seconds since it began to receive without a break
    intakes: tuple[Intake, ...] = ()  # progress by stripe; empty: not known, or only one stripe

    @property
    def is_complete(self) -> bool:
        return self.have_bytes >= self.wanted_bytes

    def intake(self, stripe: int) -> Intake:
        """Return what the member receives in this stripe, or in total if stripes are not known."""
        if self.intakes:
            return self.intakes[stripe]
        return Intake(self.have_bytes, self.wanted_bytes, self.rate, self.starved_s, self.flowing_s)


@dataclass(frozen=True)
class Feed:
    """A connection by which a parent sends the pieces of one stripe to a child."""

    parent: str  # HERE is the control machine
    child: str
    stripe: int = 0


@dataclass(frozen=True)
class Doubt:
    """A feed that delivered nothing, or far too little: its child or its parent is at fault."""

    child: str
    parent: str


@dataclass(frozen=True)
class Move:
    """A child's last change of parent in a stripe, with the progress of both at that time.

    The child is judged again once both have made progress."""

    child: str
    stripe: int
    have_bytes: int
    parent_bytes: int
    starved_s: float


@dataclass(frozen=True)
class FeedPlan:
    """All feeds of a broadcast, and what earlier plans have learned about slow members."""

    stripes: int  # number of stripes; fixed once the broadcast has begun
    # each incomplete member has exactly one feed for each stripe; no cycles within a stripe
    feeds: tuple[Feed, ...]
    # Members that received or sent far too little. They are leaves.
    slow: frozenset[str] = frozenset()
    thin: frozenset[str] = frozenset()  # sites behind a slow link; they feed no other site
    doubts: tuple[Doubt, ...] = ()  # the slow feeds from which `slow` and `thin` follow
    moves: tuple[Move, ...] = ()

    @cached_property
    def by_child(self) -> dict[str, tuple[Feed, ...]]:
        """Return child -> its feeds."""
        feeds_by_child: dict[str, tuple[Feed, ...]] = {}
        for feed in self.feeds:
            feeds_by_child[feed.child] = (*feeds_by_child.get(feed.child, ()), feed)
        return feeds_by_child

    def parents(self, stripe: int) -> dict[str, str]:
        """Return child -> its parent in this stripe."""
        return {feed.child: feed.parent for feed in self.feeds if feed.stripe == stripe}


def move(child: Member, stripe: int, parent: Member | None) -> Move:
    """Return the record of a move to this parent. None stands for the control machine."""
    intake = child.intake(stripe)
    return Move(
        child=child.name,
        stripe=stripe,
        have_bytes=intake.have_bytes,
        parent_bytes=parent.intake(stripe).have_bytes if parent else 0,
        starved_s=intake.starved_s,
    )


def sites_of(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return site -> its members. Sites with a complete member come first.

    Otherwise sites keep the order of their first members."""
    sites: dict[str, list[Member]] = {}
    for member in members:
        sites.setdefault(member.site, []).append(member)
    return dict(
        sorted(sites.items(), key=lambda each: not any(member.is_complete for member in each[1]))
    )
