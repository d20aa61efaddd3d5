from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    name: str
    site: str = ""
    serves: bool = True
    have_bytes: int = 0
    wanted_bytes: int = 0
    rate: float | None = None
    starved_s: float = 0.0


@dataclass(frozen=True)
class Feed:
    parent: str
    child: str
    stripe: int = 0


@dataclass(frozen=True)
class FeedPlan:
    stripes: int
    feeds: tuple[Feed, ...]


def first_plan(members, total_bytes):
    return next_plan(FeedPlan(1, ()), members, shut=frozenset(), out=frozenset())


def next_plan(plan, members, *, shut, out):
    live = [m for m in members if m.name not in out]
    done = [m.name for m in live if m.have_bytes >= m.wanted_bytes and m.serves]
    order = [m for m in live if m.have_bytes < m.wanted_bytes]
    old = {f.child: f for f in plan.feeds}
    feeds = []
    prev = ""
    for m in order:
        f = old.get(m.name)
        if f and f.parent not in out and (m.name, f.parent) not in shut:
            feeds.append(f)
        else:
            feeds.append(Feed(prev if (m.name, prev) not in shut else "", m.name))
        if m.serves:
            prev = m.name
    new = FeedPlan(1, tuple(feeds))
    return plan if new == plan else new
