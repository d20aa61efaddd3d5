"""Finds the connections of a broadcast that deliver nothing, or far less than they should.

The module `blame` then decides which hosts are at fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.planning.broadcast.blame import Blame, find_slow_hosts_and_sites
from tfdeploy.planning.broadcast.feeds import CONTROL_MACHINE, FeedPlan, StripeProgress, SuspectFeed
from tfdeploy.planning.broadcast.forest import Forest

# A child is slow if it receives at less than this share of the rate that its parent could send.
SLOWER = 0.5
# A low rate alone does not make a child slow. The child must also be behind its parent, by at least
# the amount of data that the parent could send in this many seconds.
BEHIND_S = 3.0
# A child with a new parent is judged only after data has arrived for about this many seconds.
SETTLED_S = 4.0
# A slow child must also be behind its parent by at least this many bytes. Over a slow link, only
# few pieces arrive in a few seconds, so the measured rate is inexact.
BEHIND_BYTES = 16 * PIECE_BYTES
# A member that has received nothing for this many seconds is starved.
STARVED_S = 3.0
# This time replaces STARVED_S for a member that is slow or has received nothing yet, because for
# such a member even one piece may take longer than STARVED_S.
SLOW_STARVED_S = 10.0
# At a low rate, STARVED_PIECES pieces may take longer than STARVED_S or SLOW_STARVED_S. In that
# case, a member counts as starved only after the time that these pieces take, or after LONGEST_S
# seconds if that is less.
STARVED_PIECES = 4
LONGEST_S = 30.0
# A parent that sends nothing is at fault only if it has itself received data in the last FED_S
# seconds. Otherwise the fault may lie with the host that sends to the parent.
FED_S = 1.5
# The first host of a chain is moved to the end of the chain, to test its speed. It is moved only
# after it has received data for TRIED_AFTER_S seconds, and only if its remaining data will take at
# least TRIED_FOR_S seconds. Both times are computed from the host's rate.
TRIED_AFTER_S = 5.0
TRIED_FOR_S = 30.0


@dataclass(frozen=True)
class Verdict:
    """The connections that deliver too little, and the hosts and sites that are at fault."""

    suspect_feeds: tuple[SuspectFeed, ...]
    blame: Blame
    # The pairs (child, stripe) in which the child receives no data of the stripe.
    starved: frozenset[tuple[str, int]]
    needs_new_parent: frozenset[tuple[str, int]]  # the pairs of `starved` that get another parent


def find_slow_feeds_and_hosts(plan: FeedPlan, forest: Forest) -> Verdict:
    """Find the connections of the plan that deliver too little, and the hosts that are at fault."""
    known_names = {*forest.members, CONTROL_MACHINE}
    suspect_feeds = {
        suspect: None
        for suspect in plan.suspect_feeds
        if suspect.child in known_names and suspect.parent in known_names
    }
    before = find_slow_hosts_and_sites(suspect_feeds, forest.members)
    evaluators = [_StripeEvaluator(plan, forest, before, each) for each in range(plan.stripes)]
    starved, needs_new_parent = set(), set()
    for stripe, evaluator in enumerate(evaluators):
        for feed in evaluator.starved_feeds():
            starved.add((feed.child, stripe))
            if feed in suspect_feeds or evaluator.feeds_nobody(feed.child):
                needs_new_parent.add((feed.child, stripe))
            suspect_feeds[feed] = None
        suspect_feeds |= dict.fromkeys(evaluator.slow_feeds())
    if plan.stripes == 1:
        suspect_feeds |= dict.fromkeys(evaluators[0].suspect_first_host(list(suspect_feeds)))
    return Verdict(
        suspect_feeds=tuple(suspect_feeds),
        blame=find_slow_hosts_and_sites(suspect_feeds, forest.members),
        starved=frozenset(starved),
        needs_new_parent=frozenset(needs_new_parent),
    )


class _StripeEvaluator:
    """Compares what each connection of one stripe delivers with what it should deliver.

    `before`: the hosts and sites that were already known to be slow.
    """

    def __init__(self, plan: FeedPlan, forest: Forest, before: Blame, stripe: int) -> None:
        self._forest, self._members, self._before = forest, forest.members, before
        self._parents = forest.parents[stripe]
        self._progress = {name: each.progress_in(stripe) for name, each in forest.members.items()}
        self._moves = {move.child: move for move in plan.moves if move.stripe == stripe}
        self._children = Counter(parent for _, parent, _ in forest.feeds())
        # A host that receives from a host with all data should reach the median rate.
        rates = [self._progress[child].rate for child in self._parents]
        self._median_rate = median([rate for rate in rates if rate is not None] or [0.0])

    def feeds_nobody(self, name: str) -> bool:
        return not self._children[name]

    def starved_feeds(self) -> Iterator[SuspectFeed]:
        """Yield the connection of each child that gets no data although its parent could send."""
        usual = self._median_rate
        for child, parent in self._feeds():
            progress, move = self._progress[child], self._moves.get(child)
            since = move.starved_s if move and move.have_bytes == progress.have_bytes else 0.0
            has_all = self._is_control_or_complete(parent)
            may_be_slow = child in self._before.slow_hosts or (
                has_all and not usual and not progress.have_bytes
            )
            rate = min(usual, progress.rate or usual)
            pieces_s = min(STARVED_PIECES * PIECE_BYTES / rate, LONGEST_S) if rate else 0.0
            patience_s = max(SLOW_STARVED_S if may_be_slow else STARVED_S, pieces_s)
            is_still = not self._has_whole_stripe(child) and progress.starved_s >= since + max(
                since, patience_s
            )
            if is_still and (has_all or self._withholds(parent, progress, patience_s)):
                yield SuspectFeed(child, parent)

    def _withholds(self, parent: str, progress: StripeProgress, patience_s: float) -> bool:
        """Return whether the parent receives data but does not send it on to this child.

        This is assumed only if the parent has received data without a break for `patience_s`
        seconds, or is many bytes ahead of the child.
        """
        of_parent = self._progress[parent]
        ahead = of_parent.have_bytes - progress.have_bytes
        is_long = of_parent.flowing_s >= patience_s or ahead >= BEHIND_BYTES
        return of_parent.starved_s <= FED_S and ahead > 0 and is_long

    def slow_feeds(self) -> Iterator[SuspectFeed]:
        """Yield the connection of each child that has been far behind its parent for some time."""
        for child, parent in self._feeds():
            if child in self._before.slow_hosts or self._crosses_slow_link(child, parent):
                continue
            has_all = self._is_control_or_complete(parent)
            rate = self._median_rate if has_all else self._rate(parent)
            # A parent can serve as many children at its full rate as there are stripes. If it has
            # more children, each of them can expect only a part of this rate.
            stripes = self._forest.stripes
            due = rate * stripes / max(stripes, self._children[parent])
            if (
                due
                and self._is_behind(child, parent, due)
                and self._is_connected_long_enough(child, parent, due)
            ):
                yield SuspectFeed(child, parent)

    def suspect_first_host(self, suspect_feeds: list[SuspectFeed]) -> Iterator[SuspectFeed]:
        """Yield the connection of a chain's first host as suspect, so that the host is moved.

        The first host is moved to the end of the chain, once in a broadcast, to test its speed. In
        the first position its speed cannot be judged, because all other hosts receive at its rate.
        If the moved host is fast at the end, the connection of the new first host becomes suspect
        too. Two suspect connections show that the first position itself is slow. In that case
        neither of the two hosts counts as slow.
        """
        heads = [child for child, parent in self._parents.items() if parent == CONTROL_MACHINE]
        suspects = [suspect.child for suspect in suspect_feeds if suspect.parent == CONTROL_MACHINE]
        if len(heads) != 1 or len(suspects) > 1:
            return
        head = heads[0]
        if suspects:
            moved = suspects[0]
            parent = self._parents.get(moved, CONTROL_MACHINE)
            is_moved = parent in self._members and moved != head
            if is_moved and [suspect.child for suspect in suspect_feeds].count(moved) == 1:
                rate = self._rate(parent)
                is_fast = self._rate(moved) >= SLOWER * rate > 0
                if is_fast and self._is_connected_long_enough(moved, parent, rate):
                    yield SuspectFeed(head, CONTROL_MACHINE)
            return
        progress, rate = self._progress[head], self._rate(head)
        if (
            rate
            and progress.wanted_bytes - progress.have_bytes >= TRIED_FOR_S * rate
            and progress.have_bytes >= TRIED_AFTER_S * rate
            and self._can_replace_head(head)
        ):
            yield SuspectFeed(head, CONTROL_MACHINE)

    def _can_replace_head(self, head: str) -> bool:
        """Return whether `head`, the first host of a chain, can be moved to the end.

        `head` must have a child, which becomes the new first host. Another host of the same site,
        which sends to nobody and is not slow, must be able to send to `head`.
        """
        site = self._members[head].site
        return bool(self._children[head]) and any(
            member.site == site
            and self.feeds_nobody(name)
            and self._forest.can_send(name, head)
            and name not in self._before.slow_hosts
            for name, member in self._members.items()
        )

    def _feeds(self) -> Iterator[tuple[str, str]]:
        for child, parent in self._parents.items():
            if parent == CONTROL_MACHINE or parent in self._members:
                yield child, parent

    def _is_behind(self, child: str, parent: str, due_rate: float) -> bool:
        progress = self._progress[child]
        if progress.rate is None or progress.rate >= SLOWER * due_rate:
            return False
        has_all = self._is_control_or_complete(parent)
        ahead = progress.wanted_bytes if has_all else self._progress[parent].have_bytes
        return ahead - progress.have_bytes >= max(BEHIND_S * due_rate, BEHIND_BYTES)

    def _is_connected_long_enough(self, child: str, parent: str, due_rate: float) -> bool:
        """Return whether the child has had its parent for long enough to be judged.

        This module has no clock, so the bytes that the child has received from this parent stand
        for the time.
        """
        move = self._moves.get(child)
        if move is None:
            return True
        if self._is_control_or_complete(parent):
            received = self._progress[child].have_bytes - move.have_bytes
            return received >= SETTLED_S * SLOWER * due_rate
        received = self._progress[parent].have_bytes - move.parent_bytes
        return received >= SETTLED_S * self._rate(parent)

    def _crosses_slow_link(self, child: str, parent: str) -> bool:
        site = self._members[child].site
        return (
            parent != CONTROL_MACHINE
            and self._members[parent].site != site
            and site in self._before.slow_sites
        )

    def _rate(self, name: str) -> float:
        return self._progress[name].rate or 0.0

    def _is_control_or_complete(self, parent: str) -> bool:
        return parent == CONTROL_MACHINE or self._has_whole_stripe(parent)

    def _has_whole_stripe(self, name: str) -> bool:
        progress = self._progress[name]
        return self._members[name].is_complete or progress.have_bytes >= progress.wanted_bytes > 0
