"""The feeds from where all members are: what has to change is changed, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from tfdeploy.planning.broadcast.feeds import FeedPlan, Member
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.planning.broadcast.next_plan import next_plan

TOTAL = 1 << 30


def chain(names: str = "abcd") -> tuple[FeedPlan, dict[str, Member]]:
    members = {name: Member(name=name, have_bytes=1000 - number, wanted_bytes=TOTAL) for number, name in enumerate(names)}
    return first_plan(members.values(), TOTAL), members


def arrows(plan: FeedPlan, stripe: int = 0) -> str:
    return " ".join(
        f"{feed.parent}>{feed.child}" for feed in sorted(plan.feeds, key=lambda feed: feed.child) if feed.stripe == stripe
    )


def test_what_works_is_the_same_plan() -> None:
    plan, members = chain()
    assert next_plan(plan, members.values()) is plan


def test_head_middle_and_leaf_die() -> None:
    plan, members = chain()
    assert arrows(next_plan(plan, members.values(), out=frozenset("a"))) == ">b b>c c>d"
    assert arrows(next_plan(plan, members.values(), out=frozenset("b"))) == ">a a>c c>d"
    assert arrows(next_plan(plan, members.values(), out=frozenset("d"))) == ">a a>b b>c"
    assert arrows(next_plan(plan, members.values(), out=frozenset("bc"))) == ">a a>d"


def test_a_pair_that_does_not_reach_each_other() -> None:
    plan, members = chain()
    assert arrows(next_plan(plan, members.values(), shut=frozenset({("b", "a")}))) == "d>a >b b>c c>d"


def test_a_host_that_nobody_reaches_becomes_a_leaf() -> None:
    plan, members = chain()
    members["b"] = replace(members["b"], serves=False)
    assert arrows(next_plan(plan, members.values())) == ">a d>b a>c c>d"


def test_complete_members_are_fed_no_more() -> None:
    plan, members = chain()
    members["a"] = replace(members["a"], have_bytes=TOTAL)
    assert arrows(next_plan(plan, members.values())) == "a>b b>c c>d"
