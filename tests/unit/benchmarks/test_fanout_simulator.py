"""Test the simulation of many hosts: the connections of the control machine to the hosts, and the
messages that the hosts exchange.
"""

from __future__ import annotations

import pytest
from fanout_simulator import THREADS, Costs, News, connects_s


def test_connecting_takes_time_of_client_or_of_hosts_divided_by_threads() -> None:
    assert connects_s(1, Costs(client_s=0.01, host_s=0.5)) == pytest.approx(0.51)
    assert connects_s(1000, Costs(client_s=0.01, host_s=0.0)) == pytest.approx(10.0)
    assert connects_s(10 * THREADS, Costs(client_s=0.0, host_s=0.5)) == pytest.approx(5.0)


def test_few_conversations_inform_all_minders_and_dead_ones_delay_none() -> None:
    costs = Costs()
    few = News(6, 0, costs, seed=1)
    assert sorted(few.run()) == list(range(6))
    many = News(60, 5, costs, seed=1)
    assert sorted(many.run()) == list(range(55))
    assert many.exchanges <= 60 * 8
    assert max(many.run().values()) < 30.0
