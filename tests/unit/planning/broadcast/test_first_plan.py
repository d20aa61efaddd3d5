"""Test which host sends to which when a broadcast begins."""

from __future__ import annotations

from collections import Counter

import pytest

from tfdeploy.planning.broadcast.feeds import CONTROL_MACHINE, Feed, FeedPlan, Member
from tfdeploy.planning.broadcast.first_plan import choose_stripe_count, first_plan

TOTAL = 1 << 30


def incomplete_member(name: str, site: str = "", serves: bool = True) -> Member:
    return Member(name=name, site=site, serves=serves, wanted_bytes=TOTAL)


def complete_member(name: str, site: str = "", serves: bool = True) -> Member:
    return Member(name=name, site=site, serves=serves, have_bytes=TOTAL, wanted_bytes=TOTAL)


def feeds_as_text(plan: FeedPlan, stripe: int = 0) -> str:
    return " ".join(f"{feed.parent}>{feed.child}" for feed in plan.feeds if feed.stripe == stripe)


CASES = {
    "one host": ([incomplete_member("a")], ">a"),
    "a chain in the order of the members": (
        [incomplete_member(name) for name in "abcd"],
        ">a a>b b>c c>d",
    ),
    "each site is entered once": (
        [incomplete_member(name, site) for name, site in zip("axby", "1212", strict=True)],
        ">a a>b b>x x>y",
    ),
    "a complete host is the source": (
        [incomplete_member("a"), complete_member("b"), incomplete_member("c")],
        "b>a a>c",
    ),
    "in a chain each of two": (
        [complete_member("a"), complete_member("b"), *(incomplete_member(name) for name in "cdef")],
        "a>c b>d c>e d>f",
    ),
    "its site comes first": (
        [incomplete_member("a", "1"), complete_member("x", "2"), incomplete_member("y", "2")],
        "x>y y>a",
    ),
    "two sites with a source each": (
        [
            complete_member("a", "1"),
            incomplete_member("b", "1"),
            complete_member("x", "2"),
            incomplete_member("y", "2"),
        ],
        "a>b x>y",
    ),
    "complete, and nobody reaches it": (
        [complete_member("a", serves=False), incomplete_member("b")],
        ">b",
    ),
    "a host that nobody reaches is a leaf": (
        [incomplete_member("a", serves=False), incomplete_member("b"), incomplete_member("c")],
        ">b b>c c>a",
    ),
    "three of them": (
        [
            *(incomplete_member(name) for name in "abc"),
            *(incomplete_member(name, serves=False) for name in "xyz"),
        ],
        ">a a>b b>c c>x c>y b>z",
    ),
    "nobody reaches anybody": (
        [incomplete_member(name, serves=False) for name in "abc"],
        ">a >b >c",
    ),
    "nobody reaches a whole site": (
        [
            incomplete_member("a", "1"),
            incomplete_member("x", "2", False),
            incomplete_member("y", "2", False),
        ],
        ">a a>x a>y",
    ),
    "all complete": ([complete_member("a"), complete_member("b")], ""),
    "nobody": ([], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_first_plan_of_members(case: str) -> None:
    members, expected = CASES[case]
    plan = first_plan(members, TOTAL)
    assert plan.stripes == 1
    assert feeds_as_text(plan) == expected


CHAINS = [(4, 1), (8, 64 << 20), (16, 512 << 20)]
TREES = [(5, 1), (8, 32 << 20), (16, 64 << 20), (17, 1 << 40), (10_000, 10**10)]


@pytest.mark.parametrize(("hosts", "total"), [*CHAINS, *TREES])
def test_few_hosts_with_much_data_form_chain(hosts: int, total: int) -> None:
    assert choose_stripe_count(hosts, total) == (1 if (hosts, total) in CHAINS else 2)


@pytest.mark.parametrize("hosts", [17, 40, 64, 1001])
def test_each_host_sends_in_one_tree_and_within_its_uplink(hosts: int) -> None:
    plan = first_plan([incomplete_member(f"n{number}") for number in range(hosts)], 1 << 20)
    assert plan.stripes == 2
    feeding = [
        {feed.parent for feed in plan.feeds if feed.stripe == stripe} - {CONTROL_MACHINE}
        for stripe in (0, 1)
    ]
    # Each host sends in one tree only. If the number of hosts is odd, one host sends in both trees.
    assert len(feeding[0] & feeding[1]) <= 1
    children = Counter(feed.parent for feed in plan.feeds)
    assert children[CONTROL_MACHINE] == 2
    assert max(children.values()) <= 2 + hosts % 2
    assert depth(plan, 0) <= 2 + hosts.bit_length()


def depth(plan: FeedPlan, stripe: int) -> int:
    parents = {feed.child: feed.parent for feed in plan.feeds if feed.stripe == stripe}

    def up(name: str) -> int:
        return 0 if name == CONTROL_MACHINE else 1 + up(parents[name])

    return max(up(name) for name in parents)


def test_each_site_is_entered_once_in_each_stripe() -> None:
    members = [incomplete_member(f"n{number}", site=f"s{number % 5}") for number in range(60)]
    sites = {member.name: member.site for member in members}
    plan = first_plan(members, 1 << 20)
    entered = Counter(
        (feed.stripe, sites[feed.child])
        for feed in plan.feeds
        if sites.get(feed.parent) != sites[feed.child]
    )
    assert set(entered.values()) == {1}
    assert len(entered) == 10


def test_one_source_feeds_both_stripes_and_two_sources_share_them() -> None:
    incomplete = [incomplete_member(f"n{number}") for number in range(20)]
    plan_with_one_source = first_plan([complete_member("s"), *incomplete], 1 << 20)
    assert [
        feed for feed in plan_with_one_source.feeds if feed.parent in (CONTROL_MACHINE, "s")
    ] == [
        Feed("s", "n0", 0),
        Feed("s", "n1", 1),
    ]
    plan_with_two_sources = first_plan(
        [complete_member("s"), complete_member("t"), *incomplete], 1 << 20
    )
    assert {
        (feed.parent, feed.stripe)
        for feed in plan_with_two_sources.feeds
        if feed.parent in (CONTROL_MACHINE, "s", "t")
    } == {("s", 0), ("t", 1)}
