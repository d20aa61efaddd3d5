"""Test what must be true for every plan of a broadcast, whichever hosts fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.planning.broadcast.feeds import CONTROL_MACHINE, FeedPlan, Member, StripeProgress
from tfdeploy.planning.broadcast.first_plan import first_plan
from tfdeploy.planning.broadcast.next_plan import next_plan

STRIPE = 1 << 28
rates = st.none() | st.sampled_from([0.0, 1e6, 5e6, 1e7])
starved = st.sampled_from([0.0, 0.5, 2.0, 3.5, 7.0, 20.0])


@st.composite
def member(draw: st.DrawFn, name: str) -> Member:
    have = draw(st.sampled_from([0, 1 << 20, STRIPE // 2, STRIPE]))
    intakes = [
        StripeProgress(
            have_bytes=have if have == STRIPE else draw(st.integers(0, STRIPE - 1)),
            wanted_bytes=STRIPE,
            rate=draw(rates),
            starved_s=draw(starved),
        )
        for _ in range(2)
    ]
    return Member(
        name=name,
        site=draw(st.sampled_from(["", "a", "b"])),
        serves=draw(st.integers(0, 4)) > 0,
        have_bytes=sum(intake.have_bytes for intake in intakes),
        wanted_bytes=2 * STRIPE,
        rate=draw(rates),
        starved_s=min(intake.starved_s for intake in intakes),
        intakes=tuple(intakes) if draw(st.booleans()) else (),
    )


@st.composite
def histories(
    draw: st.DrawFn,
) -> list[tuple[list[Member], frozenset[tuple[str, str]], frozenset[str]]]:
    """Generate a random broadcast: its states at several moments. This is a Hypothesis strategy.

    A state is (the members, the pairs of members that cannot connect, the members that are lost).
    With more than 16 members, the data is divided into two stripes, which are sent separately.
    """
    count = draw(st.integers(1, 22))
    names = [f"n{number}" for number in range(count)]
    shut: frozenset[tuple[str, str]] = frozenset()
    out: frozenset[str] = frozenset()
    moments = []
    for _ in range(draw(st.integers(1, 4))):
        some = st.sampled_from(names)
        shut |= draw(st.frozensets(st.tuples(some, some), max_size=6))
        out |= draw(st.frozensets(some, max_size=2))
        moments.append(([draw(member(name)) for name in names], shut, out))
    return moments


def assert_sound(
    plan: FeedPlan, members: list[Member], shut: frozenset[tuple[str, str]], out: frozenset[str]
) -> None:
    known = {member.name: member for member in members}
    fed = [member.name for member in members if not member.is_complete and member.name not in out]
    for stripe in range(plan.stripes):
        parents = {feed.child: feed.parent for feed in plan.feeds if feed.stripe == stripe}
        feeds = [feed for feed in plan.feeds if feed.stripe == stripe]
        assert sorted(feed.child for feed in feeds) == sorted(fed)
        for feed in feeds:
            if feed.parent != CONTROL_MACHINE:
                assert (
                    known[feed.parent].serves
                    and feed.parent not in out
                    and (feed.child, feed.parent) not in shut
                )
        for name in fed:
            above, steps = name, 0
            while above in parents:
                above, steps = parents[above], steps + 1
                assert steps <= len(members), f"a cycle above {name}"
            assert above == CONTROL_MACHINE or known[above].is_complete


@given(histories())
def test_every_plan_feeds_each_lacking_member_once_per_stripe_without_cycles(
    moments,
) -> None:
    plan = first_plan(moments[0][0], 2 * STRIPE)
    assert_sound(plan, moments[0][0], frozenset(), frozenset())
    for members, shut, out in moments:
        plan = next_plan(plan, members, unreachable_pairs=shut, lost_members=out)
        assert_sound(plan, members, shut, out)


@given(histories())
def test_plan_soon_becomes_stable_without_changes(moments) -> None:
    plan = first_plan(moments[0][0], 2 * STRIPE)
    for members, shut, out in moments:
        seen = [plan]
        while len(seen) < 8 and (len(seen) < 2 or seen[-1] is not seen[-2]):
            seen.append(next_plan(seen[-1], members, unreachable_pairs=shut, lost_members=out))
        assert seen[-1] is seen[-2]
        plan = seen[-1]


@given(st.integers(2, 40), st.data())
def test_death_moves_only_children_of_dead_host(count: int, data: st.DataObject) -> None:
    members = [Member(name=f"n{number}", wanted_bytes=STRIPE) for number in range(count)]
    plan = first_plan(members, STRIPE)
    dead = data.draw(st.sampled_from(members)).name
    changed = next_plan(plan, members, lost_members=frozenset({dead}))
    moved = {(feed.child, feed.stripe) for feed in changed.feeds} & {
        (feed.child, feed.stripe) for feed in set(changed.feeds) - set(plan.feeds)
    }
    assert moved == {(feed.child, feed.stripe) for feed in plan.feeds if feed.parent == dead}
