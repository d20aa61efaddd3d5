"""Test the next plan of a running broadcast (which host sends to which): it changes only what has
to change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.planning.broadcast.feeds import CONTROL_MACHINE, Feed, FeedPlan, Intake, Member
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

    def say(self, names: Iterable[str], **said: Any) -> Broadcast:
        for name in names:
            self.members[name] = replace(self.members[name], **said)
        return self

    def next(self, shut: Iterable[tuple[str, str]] = (), out: str = "") -> str:
        self.plan = next_plan(
            self.plan, self.members.values(), shut=frozenset(shut), out=frozenset(out)
        )
        return arrows(self.plan)


def arrows(plan: FeedPlan, stripe: int = 0) -> str:
    feeds = sorted(
        (feed for feed in plan.feeds if feed.stripe == stripe), key=lambda feed: feed.child
    )
    return " ".join(f"{feed.parent}>{feed.child}" for feed in feeds)


def test_what_works_is_the_same_plan() -> None:
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
def test_the_children_of_the_dead_go_to_the_parents_of_the_dead(out: str) -> None:
    assert Broadcast().next(out=out) == DEATHS[out]


def test_who_sends_wrong_pieces_is_out_as_the_dead_are_and_stays_out() -> None:
    chain = Broadcast()
    assert chain.next(out="b") == ">a a>c c>d d>e"
    assert chain.next(out="bd") == ">a a>c c>e"


def test_a_pair_that_does_not_reach_each_other_is_not_tried_again() -> None:
    # b sends to nobody after c has left it. So b moves below e, and c gets the position of b below
    # a.
    assert Broadcast().next(shut=[("c", "b")]) == ">a e>b a>c c>d d>e"


def test_a_host_that_reaches_nobody_is_fed_from_here() -> None:
    assert (
        Broadcast("abcdef").next(shut=[("d", "a"), ("d", "b"), ("d", "c")])
        == ">a a>b b>c >d d>e e>f"
    )


def test_a_host_that_missed_three_is_not_sent_to_a_fourth() -> None:
    chain = Broadcast("abcefd")
    assert chain.next(shut=[("d", "f"), ("d", "e")]) == ">a a>b b>c c>d c>e e>f"
    assert chain.next(shut=[("d", "f"), ("d", "e"), ("d", "c")]) == ">a a>b b>c >d c>e e>f"


def test_one_that_is_far_behind_is_no_better_parent_for_having_room() -> None:
    chain = Broadcast("abcd")
    late = Member(name="z", have_bytes=MIB, wanted_bytes=TOTAL, rate=FAST)
    chain.plan = replace(chain.plan, feeds=(*chain.plan.feeds, Feed(CONTROL_MACHINE, "z")))
    chain.members["z"] = late
    assert "a>c" in chain.next(shut=[("c", "b")])


def test_a_host_that_nobody_reaches_becomes_a_leaf_at_the_end() -> None:
    assert Broadcast().say("b", serves=False).next() == ">a e>b a>c c>d d>e"


def test_complete_members_are_fed_no_more_and_feed_on() -> None:
    chain = Broadcast().say("ab", have_bytes=TOTAL)
    assert chain.next() == "b>c c>d d>e"
    assert chain.next(out="b") == "a>c c>d d>e"


def test_who_joins_late_is_fed_by_one_who_has_room() -> None:
    chain = Broadcast("abc")
    chain.members["x"] = Member(name="x", wanted_bytes=TOTAL)
    assert chain.next() == ">a a>b b>c c>x"


def test_a_stopped_relay_becomes_a_leaf_and_its_child_goes_to_its_parent() -> None:
    chain = Broadcast().say("cde", starved_s=3.2, rate=0.0)
    # c may stay below b, because c sends to nobody and so delays no other host.
    assert chain.next() == ">a a>b b>c b>d d>e"
    assert chain.plan.slow_hosts == {"c"}
    chain.say("de", starved_s=0.0, rate=FAST, have_bytes=510 * MIB).say("c", starved_s=5.0)
    before = chain.plan
    chain.next()
    assert chain.plan is before


def test_a_member_that_starves_for_a_moment_stays() -> None:
    chain = Broadcast().say("cde", starved_s=2.0)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_a_child_is_not_starved_by_a_parent_that_waited_itself_until_just_now() -> None:
    chain = Broadcast().say("cde", starved_s=8.0, rate=0.0).say("b", flowing_s=2.9)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan
    assert chain.say("b", flowing_s=3.0).next() == ">a a>b b>c b>d d>e"


def test_over_slow_links_a_piece_is_waited_for_longer() -> None:
    """Test that a host is allowed to wait longer if links are slow: at 64 KiB/s a piece of 256 KiB
    takes 4 s.
    """
    chain = Broadcast(have=TOTAL - MIB).say("abcde", rate=65536.0).say("cde", starved_s=15.0)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan
    assert chain.say("cde", starved_s=16.0).next() == ">a a>b e>c b>d d>e"


def test_who_waited_before_the_beginning_is_not_starved_at_once() -> None:
    members = [Member(name=name, wanted_bytes=TOTAL, starved_s=8.0) for name in "abc"]
    plan = first_plan(members, TOTAL)
    assert next_plan(plan, [replace(member, starved_s=9.0) for member in members]) is plan
    assert next_plan(plan, [replace(member, starved_s=19.0) for member in members]) is not plan


def test_a_relay_that_receives_and_does_not_send_is_found_by_its_second_child() -> None:
    chain = Broadcast().say("cde", starved_s=3.2, rate=0.0).say("b", have_bytes=600 * MIB)
    assert chain.next() == ">a a>b b>c b>d d>e"
    chain.say("cde", starved_s=6.6).say("b", have_bytes=700 * MIB)
    assert chain.next() == ">a e>b a>c c>d d>e"
    assert chain.plan.slow_hosts == {"b"}


def test_where_here_sends_nothing_no_host_is_to_blame_for_long() -> None:
    chain = Broadcast().say("abcde", starved_s=3.2, rate=0.0)
    assert chain.next() == "e>a >b b>c c>d d>e"
    chain.say("abcde", starved_s=6.6)
    assert chain.next() == "e>a >b b>c c>d d>e"
    assert chain.plan.slow_hosts == set()


def slow_from(chain: Broadcast, names: str, rate: float = FAST / 10) -> Broadcast:
    """Make these hosts receive at a lower rate, for long enough to count as slow."""
    return chain.say(names, have_bytes=100 * MIB, rate=rate)


def test_a_straggler_becomes_a_leaf_and_its_child_goes_to_its_parent() -> None:
    chain = slow_from(Broadcast(), "cde")
    assert chain.next() == ">a a>b e>c b>d d>e"
    assert chain.plan.slow_hosts == {"c"}


def test_one_that_is_slow_only_since_its_last_move_is_not_judged_yet() -> None:
    chain = slow_from(Broadcast(), "cde")
    chain.next()
    before = chain.plan
    assert next_plan(chain.plan, chain.members.values()) is before


def test_a_relay_that_sends_slowly_is_found_by_its_second_child() -> None:
    chain = slow_from(Broadcast(), "cde")
    chain.next()
    chain.say("ab", have_bytes=950 * MIB).say("de", have_bytes=150 * MIB)
    assert chain.next() == ">a c>b e>c a>d d>e"
    assert chain.plan.slow_hosts == {"b"}


def test_less_than_twice_as_slow_is_not_far_slower() -> None:
    chain = slow_from(Broadcast(), "cde", rate=0.6 * FAST)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_who_lacks_little_receives_little_and_is_no_straggler() -> None:
    chain = Broadcast().say("cde", rate=FAST / 10, have_bytes=600 * MIB)
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_a_slow_first_host_of_a_site_gives_way_to_another_of_it() -> None:
    chain = slow_from(Broadcast("abxyz", sites="11222"), "xyz")
    assert chain.next() == ">a a>b z>x b>y y>z"
    assert chain.plan.slow_hosts == {"x"}


def test_a_site_behind_a_thin_line_is_entered_once_and_feeds_no_other() -> None:
    chain = slow_from(Broadcast("abxyzpq", sites="1122233"), "xyzpq")
    assert chain.next() == ">a a>b z>p p>q z>x b>y y>z"
    slow_from(chain.say("ab", have_bytes=950 * MIB), "xyzpq")
    chain.next()
    assert chain.plan.slow_sites == {"2"} and chain.plan.slow_hosts == set()
    entered = {feed.child: feed.parent for feed in chain.plan.feeds}
    assert entered["y"] == "b" and entered["p"] in "ab" and entered["q"] == "p"


def test_the_first_host_of_a_long_transfer_is_tried_at_the_end_and_is_not_to_blame_if_it_is_as_quick_there() -> (
    None
):
    chain = Broadcast().say("abcde", rate=5.0 * MIB, have_bytes=100 * MIB)
    assert chain.next() == "e>a >b b>c c>d d>e"
    chain.say("abcde", have_bytes=200 * MIB)
    assert chain.next() == "e>a >b b>c c>d d>e"
    assert chain.plan.slow_hosts == set()
    assert next_plan(chain.plan, chain.members.values()) is chain.plan


def test_many_leaves_of_one_parent_go_to_complete_hosts_once_there_are() -> None:
    members = [
        Member(name="a", wanted_bytes=TOTAL),
        *(Member(name=name, wanted_bytes=TOTAL, serves=False) for name in "xyz"),
    ]
    plan = first_plan(members, TOTAL)
    assert arrows(plan) == ">a a>x a>y a>z"
    members[0] = replace(members[0], have_bytes=TOTAL)
    members.append(Member(name="b", have_bytes=TOTAL, wanted_bytes=TOTAL))
    assert arrows(next_plan(plan, members)) == "b>x a>y a>z"


def test_two_leaves_that_make_room_do_not_feed_each_other() -> None:
    names = "abcdef"
    members = [Member(name=name, wanted_bytes=TOTAL, serves=False) for name in names]
    plan = first_plan(members, 8 * MIB)
    assert plan.stripes == 2
    plan = next_plan(plan, [replace(member, serves=True) for member in members])
    for stripe in range(2):
        parents = plan.parents(stripe)
        for name in names:
            above = name
            for _ in names:
                above = parents.get(above, CONTROL_MACHINE)
            assert above == CONTROL_MACHINE


def trees(hosts: int = 40) -> tuple[FeedPlan, dict[str, Member]]:
    intake = Intake(have_bytes=50 * MIB, wanted_bytes=TOTAL // 2, rate=FAST / 2)
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


def test_in_trees_a_stripe_that_comes_slowly_is_seen_though_the_other_comes_quickly() -> None:
    plan, members = trees()
    good = Intake(have_bytes=400 * MIB, wanted_bytes=TOTAL // 2, rate=FAST / 2)
    bad = Intake(have_bytes=50 * MIB, wanted_bytes=TOTAL // 2, rate=FAST / 20)
    fed_by_n2 = [feed.child for feed in plan.feeds if feed.parent == "n2"]
    for name in members:
        members[name] = replace(members[name], intakes=(bad if name in fed_by_n2 else good, good))
    after = next_plan(plan, members.values())
    assert after.slow_hosts == {"n2"}
    assert all(feed.parent != "n2" for feed in after.feeds)
    moved = {feed.child for feed in set(after.feeds) - set(plan.feeds)}
    # For each child of n2 that moves, at most one other host moves to make room.
    assert moved >= set(fed_by_n2) and len(moved) <= 2 * len(fed_by_n2)


def test_in_trees_a_death_costs_each_of_its_children_one_move() -> None:
    plan, members = trees()
    orphans = {(feed.child, feed.stripe) for feed in plan.feeds if feed.parent == "n0"}
    after = next_plan(plan, members.values(), out=frozenset({"n0"}))
    assert {(feed.child, feed.stripe) for feed in set(after.feeds) - set(plan.feeds)} == orphans
    assert sum(feed.parent == CONTROL_MACHINE for feed in after.feeds) == 2
