"""Finds the connections of a broadcast that deliver nothing, or far less than they should.

The module `blame` then decides which hosts are at fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tfdeploy.agent.pieces import PIECE_BYTES
from tfdeploy.planning.broadcast.blame import Blame, assign_blame
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
# At a low rate, STARVED_PIECES pieces may take longer than STARVED_S or SLOW_STARVED_S. A member is
# then starved only after the time that these pieces take, at the latest after LONGEST_S seconds.
STARVED_PIECES = 4
LONGEST_S = 30.0
# A parent that sends nothing is at fault only if the parent itself has received data within this
# many seconds. Otherwise the fault may lie with the parent's own parent.
FED_S = 1.5
# The first host of a chain is moved to the end of the chain, to test its speed. It is moved only
# after it has received data for TRIED_AFTER_S seconds, and only if its remaining data will take at
# least TRIED_FOR_S seconds. Both times are computed from the host's rate.
TRIED_AFTER_S = 5.0
TRIED_FOR_S = 30.0


@dataclass(frozen=True)
class Verdict:
    """The connections that deliver too little, and the hosts and sites that are at fault."""

    doubts: tuple[SuspectFeed, ...]
    blame: Blame
    starved: frozenset[tuple[str, int]]  # (child, stripe) without data
    needs_new_parent: frozenset[tuple[str, int]]  # the pairs of `starved` that get another parent


def judge_feeds(plan: FeedPlan, forest: Forest) -> Verdict:
    """Find the connections of the plan that deliver too little, and the hosts that are at fault."""
    known_names = {*forest.members, CONTROL_MACHINE}
    doubts = {
        doubt: None
        for doubt in plan.doubts
        if doubt.child in known_names and doubt.parent in known_names
    }
    evaluator = _FeedEvaluator(plan, forest, assign_blame(doubts, forest.members))
    starved, needs_new_parent = set(), set()
    for stripe in range(plan.stripes):
        for child, parent in evaluator.starved_feeds(stripe):
            starved.add((child, stripe))
            if SuspectFeed(child, parent) in doubts or evaluator.feeds_nobody(child):
                needs_new_parent.add((child, stripe))
            doubts[SuspectFeed(child, parent)] = None
        doubts |= {
            SuspectFeed(child, parent): None for child, parent in evaluator.slow_feeds(stripe)
        }
    if plan.stripes == 1:
        doubts |= dict.fromkeys(evaluator.suspect_first_host(list(doubts)))
    return Verdict(
        doubts=tuple(doubts),
        blame=assign_blame(doubts, forest.members),
        starved=frozenset(starved),
        needs_new_parent=frozenset(needs_new_parent),
    )


class _FeedEvaluator:
    """Compares what each connection of a plan delivers with what it should deliver.

    `before`: the hosts and sites that were already known to be slow.
    """

    def __init__(self, plan: FeedPlan, forest: Forest, before: Blame) -> None:
        self._forest, self._members, self._before = forest, forest.members, before
        self._moves = {(move.child, move.stripe): move for move in plan.moves}
        self._children = Counter(parent for _, parent, _ in forest.feeds())

    def feeds_nobody(self, name: str) -> bool:
        return not self._children[name]

    def starved_feeds(self, stripe: int) -> Iterator[tuple[str, str]]:
        """Yield (child, parent) for each child that gets no data although its parent could send."""
        usual = self._usual_rate(stripe)
        for child, parent in self._feeds(stripe):
            intake, move = self._intake(child, stripe), self._moves.get((child, stripe))
            since = move.starved_s if move and move.have_bytes == intake.have_bytes else 0.0
            may_be_slow = child in self._before.slow_hosts or (
                self._is_control_or_complete(parent, stripe) and not usual and not intake.have_bytes
            )
            rate = min(usual, intake.rate or usual)
            pieces_s = min(STARVED_PIECES * PIECE_BYTES / rate, LONGEST_S) if rate else 0.0
            patience_s = max(SLOW_STARVED_S if may_be_slow else STARVED_S, pieces_s)
            is_still = not self._has_whole_stripe(
                child, stripe
            ) and intake.starved_s >= since + max(since, patience_s)
            if is_still and (
                self._is_control_or_complete(parent, stripe)
                or self._withholds(parent, intake, stripe, patience_s)
            ):
                yield child, parent

    def _withholds(
        self, parent: str, intake: StripeProgress, stripe: int, patience_s: float
    ) -> bool:
        """Return whether the parent receives data but does not send it on to this child.

        This is assumed only if the parent has received data without a break for `patience_s`
        seconds, or is many bytes ahead of the child.
        """
        parent_intake = self._intake(parent, stripe)
        ahead = parent_intake.have_bytes - intake.have_bytes
        is_long = parent_intake.flowing_s >= patience_s or ahead >= BEHIND_BYTES
        return parent_intake.starved_s <= FED_S and ahead > 0 and is_long

    def slow_feeds(self, stripe: int) -> Iterator[tuple[str, str]]:
        """Yield (child, parent) if the child has been far behind its parent for some time."""
        usual = self._usual_rate(stripe)
        for child, parent in self._feeds(stripe):
            if child in self._before.slow_hosts or self._crosses_slow_link(child, parent):
                continue
            rate = (
                usual
                if self._is_control_or_complete(parent, stripe)
                else self._rate(parent, stripe)
            )
            # A parent can serve as many children at its full rate as there are stripes. If it has
            # more children, each of them can expect only a part of this rate.
            stripes = self._forest.stripes
            due = rate * stripes / max(stripes, self._children[parent])
            if (
                due
                and self._is_behind(child, parent, stripe, due)
                and self._is_connected_long_enough(child, parent, stripe, due)
            ):
                yield child, parent

    def suspect_first_host(self, doubts: list[SuspectFeed]) -> Iterator[SuspectFeed]:
        """Yield the connection of a chain's first host as suspect, so that the host is moved.

        The first host is moved to the end of the chain, once in a broadcast, to test its speed. In
        the first position its speed cannot be judged, because all other hosts receive at its rate.
        If the host is not slow at the end of the chain, the new first host's connection becomes
        suspect, too. Two suspect connections show that the first position itself is slow. Neither
        of the two hosts then counts as slow.
        """
        heads = [
            child for child, parent in self._forest.parents[0].items() if parent == CONTROL_MACHINE
        ]
        of_here = [doubt.child for doubt in doubts if doubt.parent == CONTROL_MACHINE]
        if len(heads) != 1 or len(of_here) > 1:
            return
        if of_here:
            first = of_here[0]
            parent = self._forest.parents[0].get(first, CONTROL_MACHINE)
            if (
                parent in self._members
                and first != heads[0]
                and [doubt.child for doubt in doubts].count(first) == 1
            ):
                parent_rate = self._rate(parent, 0)
                if self._rate(
                    first, 0
                ) >= SLOWER * parent_rate > 0 and self._is_connected_long_enough(
                    first, parent, 0, parent_rate
                ):
                    yield SuspectFeed(heads[0], CONTROL_MACHINE)
            return
        intake, rate = self._intake(heads[0], 0), self._rate(heads[0], 0)
        if (
            rate
            and intake.wanted_bytes - intake.have_bytes >= TRIED_FOR_S * rate
            and intake.have_bytes >= TRIED_AFTER_S * rate
            and self._can_replace_head(heads[0])
        ):
            yield SuspectFeed(heads[0], CONTROL_MACHINE)

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

    def _feeds(self, stripe: int) -> Iterator[tuple[str, str]]:
        for child, parent in self._forest.parents[stripe].items():
            if parent == CONTROL_MACHINE or parent in self._members:
                yield child, parent

    def _is_behind(self, child: str, parent: str, stripe: int, due_rate: float) -> bool:
        intake = self._intake(child, stripe)
        if intake.rate is None or intake.rate >= SLOWER * due_rate:
            return False
        is_full = self._is_control_or_complete(parent, stripe)
        ahead = intake.wanted_bytes if is_full else self._intake(parent, stripe).have_bytes
        return ahead - intake.have_bytes >= max(BEHIND_S * due_rate, BEHIND_BYTES)

    def _is_connected_long_enough(
        self, child: str, parent: str, stripe: int, due_rate: float
    ) -> bool:
        """Return whether the child has had its parent for long enough to be judged.

        This module has no clock, so the bytes that the child has received from this parent stand
        for the time.
        """
        move = self._moves.get((child, stripe))
        if move is None:
            return True
        if self._is_control_or_complete(parent, stripe):
            received = self._intake(child, stripe).have_bytes - move.have_bytes
            return received >= SETTLED_S * SLOWER * due_rate
        received = self._intake(parent, stripe).have_bytes - move.parent_bytes
        return received >= SETTLED_S * self._rate(parent, stripe)

    def _crosses_slow_link(self, child: str, parent: str) -> bool:
        site = self._members[child].site
        return (
            parent != CONTROL_MACHINE
            and self._members[parent].site != site
            and site in self._before.slow_sites
        )

    def _intake(self, name: str, stripe: int) -> StripeProgress:
        return self._members[name].progress_in(stripe)

    def _rate(self, name: str, stripe: int) -> float:
        return self._intake(name, stripe).rate or 0.0

    def _is_control_or_complete(self, parent: str, stripe: int) -> bool:
        return parent == CONTROL_MACHINE or self._has_whole_stripe(parent, stripe)

    def _has_whole_stripe(self, name: str, stripe: int) -> bool:
        intake = self._intake(name, stripe)
        return self._members[name].is_complete or intake.have_bytes >= intake.wanted_bytes > 0

    def _usual_rate(self, stripe: int) -> float:
        """Return the median rate in the stripe.

        A host that receives from a host with all data should reach this rate.
        """
        rates = [self._intake(child, stripe).rate for child in self._forest.parents[stripe]]
        return median([rate for rate in rates if rate is not None] or [0.0])
