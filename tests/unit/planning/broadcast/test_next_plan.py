"""Test how the plan of a running broadcast (which host sends to which) is changed, and that only
what must change is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.planning.broadcast.feeds import (
    CONTROL_MACHINE,
    Feed,
    FeedPlan,
    Member,
    StripeProgress,
)
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.planning.broadcast.next_plan import next_plan

MIB = 1 << 20
TOTAL = 1 << 30
FAST = 100.0 * MIB


class Broadcast:
    """A broadcast to hosts a, b, c, ..., each of which receives from the host before it.

    Each host has a little less data than the host before it, and all receive at the same rate.
    """

    def __init__(self, names: str = "abcde", sites: str = "", have: int = 500 * MIB) -> None:
        self.members = {
            name: Member(
                name=name,
                site=sites[number] if sites else "",
                have_bytes=have - number * MIB,
                wanted_bytes=TOTAL,
                rate=FAST,
            )
            for number, name in enumerate(names)
        }
        self.plan: FeedPlan = first_plan(self.members.values(), TOTAL)

    def say(self, names: Iterable[str], **fields: Any) -> Broadcast:
        for name in names:
            self.members[name] = replace(self.members[name], **fields)
        return self

    def next(self, shut: Iterable[tuple[str, str]] = (), out: str = "") -> str:
        self.plan = next_plan(
            self.plan,
            self.members.values(),
            unreachable_pairs=frozenset(shut),
            lost_members=frozenset(out),
        )
        return feeds_as_text(self.plan)


def feeds_as_text(plan: FeedPlan, stripe: int = 0) -> str:
    feeds = sorted(
        (feed for feed in plan.feeds if feed.stripe == stripe), key=lambda feed: feed.child
    )
    return " ".join(f"{feed.parent}>{feed.child}" for feed in feeds)


def test_working_plan_is_unchanged() -> None:
    chain = Broadcast()
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


DEATHS = {
    "a": ">b b>c c>d d>e",
    "b": ">a a>c c>d d>e",
    "e": ">a a>b b>c c>d",
    "bc": ">a a>d d>e",
    "ac": ">b b>d d>e",
    "abcd": ">e",
    "abcde": "",
}


@pytest.mark.parametrize("out", DEATHS)
def test_children_of_dead_host_move_to_its_parent(out: str) -> None:
    assert Broadcast().next(out=out) == DEATHS[out]


def test_sender_of_wrong_pieces_is_excluded_like_dead_host() -> None:
    chain = Broadcast()
    assert chain.next(out="b") == ">a a>c c>d d>e"
    assert chain.next(out="bd") == ">a a>c c>e"


def test_unreachable_pair_is_not_retried() -> None:
    # c cannot connect to b, so c takes b's place and receives from a. b, which then sends to no
    # host, moves to the end of the chain, behind e.
    assert Broadcast().next(shut=[("c", "b")]) == ">a e>b a>c c>d d>e"


def test_host_that_reaches_no_other_receives_from_this_machine() -> None:
    assert (
        Broadcast("abcdef").next(shut=[("d", "a"), ("d", "b"), ("d", "c")])
        == ">a a>b b>c >d d>e e>f"
    )


def test_host_that_three_parents_cannot_reach_receives_from_this_machine() -> None:
    chain = Broadcast("abcefd")
    assert chain.next(shut=[("d", "f"), ("d", "e")]) == ">a a>b b>c c>d c>e e>f"
    assert chain.next(shut=[("d", "f"), ("d", "e"), ("d", "c")]) == ">a a>b b>c >d c>e e>f"


def test_host_far_behind_is_no_parent_despite_free_capacity() -> None:
    chain = Broadcast("abcd")
    late = Member(name="z", have_bytes=MIB, wanted_bytes=TOTAL, rate=FAST)
    chain.plan = replace(chain.plan, feeds=(*chain.plan.feeds, Feed(CONTROL_MACHINE, "z")))
    chain.members["z"] = late
    assert "a>c" in chain.next(shut=[("c", "b")])


def test_unreachable_host_becomes_last_leaf() -> None:
    assert Broadcast().say("b", serves=False).next() == ">a e>b a>c c>d d>e"


def test_complete_members_only_send() -> None:
    chain = Broadcast().say("ab", have_bytes=TOTAL)
    assert chain.next() == "b>c c>d d>e"
    assert chain.next(out="b") == "a>c c>d d>e"


def test_late_member_receives_from_member_with_free_capacity() -> None:
    chain = Broadcast("abc")
    chain.members["x"] = Member(name="x", wanted_bytes=TOTAL)
    assert chain.next() == ">a a>b b>c c>x"


def test_stopped_relay_becomes_leaf_and_its_child_moves_to_its_parent() -> None:
    chain = Broadcast().say("cde", starved_s=3.2, rate=0.0)
    # The slow host c may still receive from b: c sends to no host now, so it delays no other host.
    assert chain.next() == ">a a>b b>c b>d d>e"
    assert chain.plan.slow_hosts == {"c"}
    chain.say("de", starved_s=0.0, rate=FAST, have_bytes=510 * MIB).say("c", starved_s=5.0)
    before = chain.plan
    chain.next()
    assert chain.plan is before


def test_member_that_waits_briefly_stays() -> None:
    chain = Broadcast().say("cde", starved_s=2.0)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_parent_that_has_just_waited_is_not_blamed() -> None:
    chain = Broadcast().say("cde", starved_s=8.0, rate=0.0).say("b", flowing_s=2.9)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan
    assert chain.say("b", flowing_s=3.0).next() == ">a a>b b>c b>d d>e"


def test_waiting_limit_is_longer_over_slow_links() -> None:
    """Test that a host is allowed to wait longer if links are slow: at 64 KiB/s a piece of 256 KiB
    takes 4 s.
    """
    chain = Broadcast(have=TOTAL - MIB).say("abcde", rate=65536.0).say("cde", starved_s=15.0)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan
    assert chain.say("cde", starved_s=16.0).next() == ">a a>b e>c b>d d>e"


def test_waiting_before_broadcast_does_not_count() -> None:
    members = [Member(name=name, wanted_bytes=TOTAL, starved_s=8.0) for name in "abc"]
    plan = first_plan(members, TOTAL)
    assert next_plan(plan, [replace(member, starved_s=9.0) for member in members]) is plan
    assert next_plan(plan, [replace(member, starved_s=19.0) for member in members]) is not plan


def test_relay_that_does_not_send_is_detected_by_second_child() -> None:
    chain = Broadcast().say("cde", starved_s=3.2, rate=0.0).say("b", have_bytes=600 * MIB)
    assert chain.next() == ">a a>b b>c b>d d>e"
    chain.say("cde", starved_s=6.6).say("b", have_bytes=700 * MIB)
    assert chain.next() == ">a e>b a>c c>d d>e"
    assert chain.plan.slow_hosts == {"b"}


def test_no_host_is_blamed_if_this_machine_sends_nothing() -> None:
    chain = Broadcast().say("abcde", starved_s=3.2, rate=0.0)
    assert chain.next() == "e>a >b b>c c>d d>e"
    chain.say("abcde", starved_s=6.6)
    assert chain.next() == "e>a >b b>c c>d d>e"
    assert chain.plan.slow_hosts == set()


def slow_from(chain: Broadcast, names: str, rate: float = FAST / 10) -> Broadcast:
    """Make these hosts receive at a lower rate, and for so long that they count as slow."""
    return chain.say(names, have_bytes=100 * MIB, rate=rate)


def test_straggler_becomes_leaf_and_its_child_moves_to_its_parent() -> None:
    chain = slow_from(Broadcast(), "cde")
    assert chain.next() == ">a a>b e>c b>d d>e"
    assert chain.plan.slow_hosts == {"c"}


def test_host_slow_since_last_move_is_not_judged_yet() -> None:
    chain = slow_from(Broadcast(), "cde")
    chain.next()
    before = chain.plan
    assert next_plan(chain.plan, chain.members.values()) is before


def test_relay_that_sends_slowly_is_detected_by_second_child() -> None:
    chain = slow_from(Broadcast(), "cde")
    chain.next()
    chain.say("ab", have_bytes=950 * MIB).say("de", have_bytes=150 * MIB)
    assert chain.next() == ">a c>b e>c a>d d>e"
    assert chain.plan.slow_hosts == {"b"}


def test_host_less_than_twice_as_slow_is_no_straggler() -> None:
    chain = slow_from(Broadcast(), "cde", rate=0.6 * FAST)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_host_that_lacks_little_is_no_straggler() -> None:
    chain = Broadcast().say("cde", rate=FAST / 10, have_bytes=600 * MIB)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_slow_first_host_of_site_is_replaced() -> None:
    chain = slow_from(Broadcast("abxyz", sites="11222"), "xyz")
    assert chain.next() == ">a a>b z>x b>y y>z"
    assert chain.plan.slow_hosts == {"x"}


def test_site_behind_slow_line_is_entered_once_and_feeds_no_other() -> None:
    chain = slow_from(Broadcast("abxyzpq", sites="1122233"), "xyzpq")
    assert chain.next() == ">a a>b z>p p>q z>x b>y y>z"
    slow_from(chain.say("ab", have_bytes=950 * MIB), "xyzpq")
    chain.next()
    assert chain.plan.slow_sites == {"2"} and chain.plan.slow_hosts == set()
    entered = {feed.child: feed.parent for feed in chain.plan.feeds}
    assert entered["y"] == "b" and entered["p"] in "ab" and entered["q"] == "p"


def test_slow_first_host_is_moved_to_end_and_not_blamed_if_it_keeps_up_there() -> None:
    chain = Broadcast().say("abcde", rate=5.0 * MIB, have_bytes=100 * MIB)
    assert chain.next() == "e>a >b b>c c>d d>e"
    chain.say("abcde", have_bytes=200 * MIB)
    assert chain.next() == "e>a >b b>c c>d d>e"
    assert chain.plan.slow_hosts == set()
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_leaves_of_one_parent_move_to_complete_hosts() -> None:
    members = [
        Member(name="a", wanted_bytes=TOTAL),
        *(Member(name=name, wanted_bytes=TOTAL, serves=False) for name in "xyz"),
    ]
    plan = first_plan(members, TOTAL)
    assert feeds_as_text(plan) == ">a a>x a>y a>z"
    members[0] = replace(members[0], have_bytes=TOTAL)
    members.append(Member(name="b", have_bytes=TOTAL, wanted_bytes=TOTAL))
    assert feeds_as_text(next_plan(plan, members)) == "b>x a>y a>z"


def test_two_moved_leaves_do_not_feed_each_other() -> None:
    names = "abcdef"
    members = [Member(name=name, wanted_bytes=TOTAL, serves=False) for name in names]
    plan = first_plan(members, 8 * MIB)
    assert plan.stripes == 2
    plan = next_plan(plan, [replace(member, serves=True) for member in members])
    for stripe in range(2):
        parents = {feed.child: feed.parent for feed in plan.feeds if feed.stripe == stripe}
        for name in names:
            above = name
            for _ in names:
                above = parents.get(above, CONTROL_MACHINE)
            assert above == CONTROL_MACHINE


def plan_of_trees(hosts: int = 40) -> tuple[FeedPlan, dict[str, Member]]:
    intake = StripeProgress(have_bytes=50 * MIB, wanted_bytes=TOTAL // 2, rate=FAST / 2)
    members = {
        f"n{number}": Member(
            name=f"n{number}",
            have_bytes=100 * MIB,
            wanted_bytes=TOTAL,
            rate=FAST,
            intakes=(intake, intake),
        )
        for number in range(hosts)
    }
    return first_plan(members.values(), TOTAL), members


def test_slow_stripe_is_detected_beside_fast_one() -> None:
    plan, members = plan_of_trees()
    good = StripeProgress(have_bytes=400 * MIB, wanted_bytes=TOTAL // 2, rate=FAST / 2)
    bad = StripeProgress(have_bytes=50 * MIB, wanted_bytes=TOTAL // 2, rate=FAST / 20)
    fed_by_n2 = [feed.child for feed in plan.feeds if feed.parent == "n2"]
    for name in members:
        members[name] = replace(members[name], intakes=(bad if name in fed_by_n2 else good, good))
    after = next_plan(plan, members.values())
    assert after.slow_hosts == {"n2"}
    assert all(feed.parent != "n2" for feed in after.feeds)
    moved = {feed.child for feed in set(after.feeds) - set(plan.feeds)}
    # All hosts that received from n2 must move. For each of them, at most one other host moves, to
    # make room.
    assert moved >= set(fed_by_n2) and len(moved) <= 2 * len(fed_by_n2)


def test_death_in_tree_moves_each_child_once() -> None:
    plan, members = plan_of_trees()
    orphans = {(feed.child, feed.stripe) for feed in plan.feeds if feed.parent == "n0"}
    after = next_plan(plan, members.values(), lost_members=frozenset({"n0"}))
    assert {(feed.child, feed.stripe) for feed in set(after.feeds) - set(plan.feeds)} == orphans
    assert sum(feed.parent == CONTROL_MACHINE for feed in after.feeds) == 2
