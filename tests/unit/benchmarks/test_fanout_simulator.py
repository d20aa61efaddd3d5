"""Test the simulation of a large number of hosts: the connections to them, and the messages among
them.
"""

from __future__ import annotations

import pytest
from fanout_simulator import THREADS, Costs, News, connects_s


def test_connects_take_what_the_client_needs_or_what_the_hosts_need_shared_by_the_threads() -> None:
    assert connects_s(1, Costs(client_s=0.01, host_s=0.5)) == pytest.approx(0.51)
    assert connects_s(1000, Costs(client_s=0.01, host_s=0.0)) == pytest.approx(10.0)
    assert connects_s(10 * THREADS, Costs(client_s=0.0, host_s=0.5)) == pytest.approx(5.0)


def test_all_minders_hear_of_it_with_a_few_conversations_each_and_the_dead_hold_nobody_up() -> None:
    costs = Costs()
    few = News(6, 0, costs, seed=1)
    assert sorted(few.run()) == list(range(6))
    many = News(60, 5, costs, seed=1)
    assert sorted(many.run()) == list(range(55))
    assert many.exchanges <= 60 * 8
    assert max(many.run().values()) < 30.0
