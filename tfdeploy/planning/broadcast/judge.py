"""Which members hold others up: they receive nothing, or far more slowly than their parents. Such a one becomes a leaf.

Whether a child is slow or its parent, a move shows: where a second child of one parent is slow, the parent is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.planning.broadcast.feeds import Blame, FeedPlan
from tfdeploy.planning.broadcast.forest import Forest


@dataclass(frozen=True)
class Verdict:
    blamed: tuple[Blame, ...]
    thin: frozenset[str] = frozenset()
    moved: frozenset[tuple[str, int]] = frozenset()  # (child, stripe): gets another parent, or another place as a leaf
    not_again: frozenset[tuple[str, int, str]] = frozenset()  # (child, stripe, parent)


def judge(plan: FeedPlan, forest: Forest) -> Verdict:
    return Verdict(plan.blamed, plan.thin)
