"""Test which other hosts a minder (the process that looks after a run on a host) informs, and when
it does so. The tests set the clock.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tfdeploy.agent import wire
from tfdeploy.agent.mesh import gossip_schedule
from tfdeploy.agent.mesh.gossip_schedule import GossipSchedule, PeerContactState

OLD, NEW = "old", "new"


@pytest.fixture(autouse=True)
def _first_exchange_after_nine_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip_schedule.random, "random", lambda: 0.9)


def peers(count: int) -> dict[str, PeerContactState]:
    return {
        f"n{n}": PeerContactState(wire.MeshHost(f"n{n}", f"10.0.0.{n}", 9), OLD)
        for n in range(1, count + 1)
    }


def due(
    made: GossipSchedule, those: dict[str, PeerContactState], now: float
) -> list[PeerContactState]:
    """Return all peers that are due now. Mark them as informed."""
    chosen = made.choose_due_peers(list(those.values()), NEW, now)
    for peer in chosen:
        peer.digest, peer.last_message = NEW, now
    return chosen


def lacking(those: dict[str, PeerContactState]) -> int:
    return sum(peer.digest != NEW for peer in those.values())


@pytest.mark.parametrize(
    ("count", "at_once"),
    [(3, 3), (gossip_schedule.FEW, gossip_schedule.FEW), (63, gossip_schedule.FANOUT)],
)
def test_news_goes_to_a_few_at_once_and_of_many_to_some(count: int, at_once: int) -> None:
    those = peers(count)
    made = GossipSchedule(those, 0.0)
    made.schedule_state_sending(False, 0.0)
    assert len(due(made, those, 0.0)) == at_once


def test_of_many_the_others_hear_slowly_and_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gossip_schedule.random, "uniform", lambda low, high: (low + high) / 2)
    monkeypatch.setattr(gossip_schedule, "EXCHANGE_INTERVAL_S", 1e6)
    those = peers(40)
    made = GossipSchedule(those, 0.0)
    made.schedule_state_sending(False, 0.0)
    due(made, those, 0.0)
    when: list[float] = []
    now = 0.0
    while now < 60.0:
        now += made.seconds_until_due(list(those.values()), NEW, now)
        before = lacking(those)
        due(made, those, now)
        when += [now] * (before - lacking(those))
    pauses = [later - sooner for sooner, later in pairwise(when)]
    assert len(pauses) > 3 and pauses == sorted(pauses) and pauses[-1] > 2 * pauses[0], when


def test_endings_after_the_end_go_out_together_and_to_one() -> None:
    those = peers(63)
    made = GossipSchedule(those, 0.0)
    made.schedule_state_sending(True, 0.0)
    latest = gossip_schedule.LATE_S * 63
    assert not due(made, those, 0.1)
    # A second change must not delay the message about the first change. Otherwise continuous
    # changes would delay that message forever.
    made.schedule_state_sending(True, 0.2)
    assert 0 < made.seconds_until_due(list(those.values()), NEW, 0.2) <= latest
    assert len(due(made, those, latest)) == 1


def test_what_matters_does_not_wait_for_them() -> None:
    those = peers(63)
    made = GossipSchedule(those, 0.0)
    made.schedule_state_sending(True, 0.0)
    made.schedule_state_sending(False, 0.1)
    assert len(due(made, those, 0.1)) == gossip_schedule.FANOUT


def test_a_few_hear_of_late_endings_at_once_too() -> None:
    those = peers(3)
    made = GossipSchedule(those, 0.0)
    made.schedule_state_sending(True, 0.0)
    assert len(due(made, those, 0.0)) == 3


def test_who_does_not_answer_is_asked_again_with_growing_pauses() -> None:
    those = peers(1)
    made, peer = GossipSchedule(those, 0.0), those["n1"]
    made.schedule_state_sending(False, 0.0)
    asked, now = [], 0.0
    while now < 60.0:
        if made.choose_due_peers([peer], NEW, now):
            asked.append(now)
            made.record_failure(peer, False, now)
        now += made.seconds_until_due([peer], NEW, now)
    assert 6 <= len(asked) <= 30 and asked[3] < 5.0


def test_nobody_goes_unasked_for_longer_than_attended() -> None:
    those = peers(3)
    made = GossipSchedule(those, 0.0)
    assert made.set_connect_interval(1.0) and not made.set_connect_interval(1.0)
    now, seen = 0.0, dict.fromkeys(those, 0.0)
    while now < 20.0:
        for peer in due(made, those, now):
            seen[peer.address.host] = peer.tried = now
        assert all(now - at <= 1.1 for at in seen.values())
        now += min(made.seconds_until_due(list(those.values()), NEW, now), 0.1)


def test_sixty_four_that_end_one_after_the_other_all_hear_of_all() -> None:
    """Each host that learns of the end of another host informs further hosts. This may take at most
    2,500 connections in total. If a host informed four hosts at once each time, there would be
    about 6,000 connections.
    """
    count = 64
    random.seed(4)
    ends = [random.uniform(0.0, 6.0) for _ in range(count)]
    knows: list[set[int]] = [set() for _ in range(count)]
    tables = [
        {
            f"n{o}": PeerContactState(wire.MeshHost(f"n{o}", "", o), "")
            for o in range(count)
            if o != me
        }
        for me in range(count)
    ]
    schedules = [GossipSchedule(table, 0.0) for table in tables]
    talks, now = 0, 0.0
    while now < 6.0 or any(len(known) < count for known in knows):
        assert now < 30.0, sorted(len(known) for known in knows)
        for me in random.sample(range(count), count):
            if ends[me] <= now and me not in knows[me]:
                knows[me].add(me)
                schedules[me].schedule_state_sending(True, now)
            concerned = [peer for peer in tables[me].values() if peer.address.port not in knows[me]]
            for peer in schedules[me].choose_due_peers(concerned, str(sorted(knows[me])), now):
                other = peer.address.port
                talks += 1
                both = knows[me] | knows[other]
                for one, told in ((me, other), (other, me)):
                    if knows[one] != both:
                        knows[one] = set(both)
                        schedules[one].schedule_state_sending(True, now)
                    tables[one][f"n{told}"].digest = str(sorted(both))
        now += 0.05
    assert talks < 2500
