"""Updates the plan of a running broadcast: hosts without a working parent get a new one.

This module reads no clock: each member's record contains its rate and how long it has received no
data.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfdeploy.planning.broadcast.choose_parents import choose_parents
from tfdeploy.planning.broadcast.feeds import (
    CONTROL_MACHINE,
    Feed,
    FeedPlan,
    Member,
    Move,
    make_move,
)
from tfdeploy.planning.broadcast.forest import Forest
from tfdeploy.planning.broadcast.judge import Verdict, find_slow_feeds_and_hosts


def next_plan(
    plan: FeedPlan,
    members: Iterable[Member],
    *,
    unreachable_pairs: frozenset[tuple[str, str]] = frozenset(),
    lost_members: frozenset[str] = frozenset(),
) -> FeedPlan:
    """Return the changed plan, or the same object if nothing has to change.

    `unreachable_pairs`: pairs (child, parent) in which the child could not connect to the parent.
    `lost_members`: members that died or sent wrong pieces; they neither send nor receive any more.
    """
    members_by_name = {member.name: member for member in members if member.name not in lost_members}
    forest = Forest(plan.feeds, plan.stripes, members_by_name, unreachable_pairs)
    verdict = find_slow_feeds_and_hosts(plan, forest)
    _remove_ended_feeds(forest, verdict)
    without_parent = [
        (name, stripe)
        for stripe, parents in enumerate(forest.parents)
        for name, member in members_by_name.items()
        if not member.is_complete and name not in parents
    ]
    choose_parents(forest, verdict, without_parent)
    changed = FeedPlan(
        stripes=plan.stripes,
        feeds=_changed_feeds(plan, forest),
        slow_hosts=verdict.blame.slow_hosts,
        slow_sites=verdict.blame.slow_sites,
        suspect_feeds=verdict.suspect_feeds,
        moves=_latest_moves(plan, forest, verdict),
    )
    return plan if changed == plan else changed


def _remove_ended_feeds(forest: Forest, verdict: Verdict) -> None:
    """Remove each connection whose parent may no longer send to the child, or sends it nothing."""
    for stripe, parent, child in list(forest.feeds()):
        must_end = parent != CONTROL_MACHINE and not _feed_may_continue(
            forest, verdict, parent, child
        )
        if must_end or (child, stripe) in verdict.needs_new_parent:
            del forest.parents[stripe][child]


def _feed_may_continue(forest: Forest, verdict: Verdict, parent: str, child: str) -> bool:
    if parent in verdict.blame.slow_hosts or not forest.can_send(parent, child):
        return False
    parent_member, site = forest.members[parent], forest.members[child].site
    is_thin = parent_member.site in verdict.blame.slow_sites and not parent_member.is_complete
    # The data of a whole site must not pass through a slow host.
    return parent_member.site == site or not (is_thin or child in verdict.blame.slow_hosts)


def _changed_feeds(plan: FeedPlan, forest: Forest) -> tuple[Feed, ...]:
    """Return the connections of the changed plan: first those that stay, then the new ones."""
    new = {(stripe, child): parent for stripe, parent, child in forest.feeds()}
    kept = [feed for feed in plan.feeds if new.get((feed.stripe, feed.child)) == feed.parent]
    for feed in kept:
        del new[feed.stripe, feed.child]
    return (*kept, *(Feed(parent, child, stripe) for (stripe, child), parent in new.items()))


def _latest_moves(plan: FeedPlan, forest: Forest, verdict: Verdict) -> tuple[Move, ...]:
    """Return the latest Move of each child that has changed its parent.

    A child that receives no data gets a new Move even if it keeps its parent. From then on, only
    the time after this Move counts as waiting for data.
    """
    moves = {
        (each.child, each.stripe): each
        for each in plan.moves
        if each.child in forest.parents[each.stripe]
    }
    for stripe, parent, child in forest.feeds():
        if forest.former_parents[stripe].get(child) != parent or (child, stripe) in verdict.starved:
            moves[child, stripe] = make_move(
                forest.members[child], stripe, forest.members.get(parent)
            )
    return tuple(moves.values())
