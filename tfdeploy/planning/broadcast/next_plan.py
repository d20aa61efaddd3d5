"""The feeds as they should be from now on. Feeds that work stay; a child that lost its parent is placed anew.

Nothing is decided by a clock: how long a member has starved and how fast it receives is said by its record.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfdeploy.planning.broadcast.feeds import HERE, Feed, FeedPlan, Member, Move
from tfdeploy.planning.broadcast.forest import Forest
from tfdeploy.planning.broadcast.judge import Verdict, judge
from tfdeploy.planning.broadcast.place import Placer


def next_plan(
    plan: FeedPlan,
    members: Iterable[Member],
    *,
    shut: frozenset[tuple[str, str]] = frozenset(),
    out: frozenset[str] = frozenset(),
) -> FeedPlan:
    """The very same plan where nothing has to change.

    `shut`: (child, parent) pairs that do not reach each other; `out`: members that died or sent wrong pieces, and so feed
    nobody and are fed nothing.
    """
    known = {member.name: member for member in members if member.name not in out}
    forest = Forest(plan.feeds, plan.stripes, known, shut)
    verdict = judge(plan, forest)
    moved = _cut(forest, verdict)
    lone = [(name, stripe) for stripe in range(plan.stripes) for name in known if _lacks_parent(forest, name, stripe)]
    if lone:
        Placer(forest, verdict).place(lone)
    feeds = _feeds(plan, forest)
    moves = _moves(plan, forest, lone if moved or lone else [])
    changed = FeedPlan(plan.stripes, feeds, verdict.blamed, moves, verdict.thin)
    return plan if changed == plan else changed


def _lacks_parent(forest: Forest, name: str, stripe: int) -> bool:
    return not forest.members[name].is_complete and name not in forest.parents[stripe]


def _cut(forest: Forest, verdict: Verdict) -> bool:
    """Takes out the feeds that do not hold any more."""
    leaves = {blame.member for blame in verdict.blamed}
    sources = [name for name, member in forest.members.items() if member.is_complete and name not in leaves]
    gone = []
    for stripe, parent, child in forest.feeds():
        if (child, stripe) in verdict.moved or parent in leaves:
            gone.append((child, stripe))
        elif parent == HERE:
            if not forest.reaches_nobody(child) and any(forest.may_feed(source, child) for source in sources):
                gone.append((child, stripe))
        elif not forest.may_feed(parent, child) or _leaves_thin_site(forest, verdict, parent, child):
            gone.append((child, stripe))
    for child, stripe in gone:
        forest.cut(child, stripe)
    return bool(gone)


def _leaves_thin_site(forest: Forest, verdict: Verdict, parent: str, child: str) -> bool:
    site = forest.members[parent].site
    return site in verdict.thin and forest.members[child].site != site and not forest.members[parent].is_complete


def _feeds(plan: FeedPlan, forest: Forest) -> tuple[Feed, ...]:
    """In the order of the plan before, what is new behind it."""
    parents = [dict(each) for each in forest.parents]
    kept = []
    for feed in plan.feeds:
        if parents[feed.stripe].get(feed.child) == feed.parent:
            kept.append(feed)
            del parents[feed.stripe][feed.child]
    return (*kept, *(Feed(parent, child, stripe) for stripe, each in enumerate(parents) for child, parent in each.items()))


def _moves(plan: FeedPlan, forest: Forest, placed: list[tuple[str, int]]) -> tuple[Move, ...]:
    fresh = {}
    for child, stripe in placed:
        intake = forest.members[child].intake(stripe)
        fresh[child, stripe] = Move(child, stripe, intake.have_bytes, intake.starved_s)
    stays = [move for move in plan.moves if move.child in forest.parents[move.stripe] and (move.child, move.stripe) not in fresh]
    return (*stays, *fresh.values())
