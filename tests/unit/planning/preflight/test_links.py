"""Test which ports of the other hosts each host tries to reach, and in which order the speed
between pairs of hosts is measured.

Some tests check what tfdeploy concludes from a failed connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from tfdeploy.model.facts import HostFacts, Why
from tfdeploy.model.inventory import Host
from tfdeploy.model.output.check import LinkResult
from tfdeploy.planning.preflight.links import (
    explain_failure,
    listening_ports,
    mark_slow_links,
    pair_rounds,
)

FactsOf = Callable[..., HostFacts]


def link(source: str, to: str, **fields: Any) -> LinkResult:
    return LinkResult(from_host=source, to_host=to, port=2222, **fields)


def hosts_of(count: int, **fields: str) -> dict[str, Host]:
    return {
        f"n{number}": Host(
            name=f"n{number}", address=f"192.0.{number // 250}.{number % 250 + 1}", **fields
        )
        for number in range(count)
    }


@pytest.mark.parametrize(("count", "tried"), [(3, 2), (60, 2), (200, 1)])
def test_without_plan_both_ends_of_range_are_tried_or_one_for_many_hosts(
    facts_of: FactsOf, count: int, tried: int
) -> None:
    hosts = hosts_of(count)
    host_ends = listening_ports(hosts, {name: facts_of(host) for name, host in hosts.items()}, None)
    assert {ends.ports for ends in host_ends.values()} == {(2222, 2299)[:tried]} and host_ends[
        "n0"
    ].address == "192.0.0.1"


def test_hosts_behind_one_address_get_separate_ports(facts_of: FactsOf) -> None:
    hosts = {name: replace(host, address="127.0.0.1") for name, host in hosts_of(3).items()}
    host_ends = listening_ports(hosts, {name: facts_of(host) for name, host in hosts.items()}, None)
    ports = [port for ends in host_ends.values() for port in ends.ports]
    assert len(ports) == len(set(ports)) == 6


def test_host_without_address_or_free_port_is_left_out(facts_of: FactsOf) -> None:
    hosts = {**hosts_of(2), "x": Host(name="x", address="some-name")}
    facts = {
        "n0": facts_of(hosts["n0"]),
        "n1": facts_of(hosts["n1"], free_ports=()),
        "x": facts_of(hosts["x"]),
    }
    assert list(listening_ports(hosts, facts, None)) == ["n0"]


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_every_pair_is_measured_once_and_no_host_twice_per_round(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    all_rounds = pair_rounds(names)
    pairs = [frozenset(pair) for pairs_of_round in all_rounds for pair in pairs_of_round]
    assert len(pairs) == len(set(pairs)) == count * (count - 1) // 2
    for pairs_of_round in all_rounds:
        inside = [name for pair in pairs_of_round for name in pair]
        assert len(inside) == len(set(inside))
    assert len(all_rounds) == count - 1 + count % 2


@pytest.mark.parametrize("cause", get_args(Why))
def test_each_cause_has_description_and_fix(cause: Why) -> None:
    failure = explain_failure(
        link("n1", "n2"), cause, "something", Host(name="n2", address="192.0.2.2"), "192.0.2.2"
    )
    assert not failure.ok and failure.why and failure.fix
    assert "there)" not in failure.fix and "(as root" not in failure.fix


def test_slow_links_are_marked_but_ok() -> None:
    links = [link("n1", "n2", ms=0.2, mbit_s=940.0)] * 5
    slow, far, bad = (
        replace(links[0], mbit_s=90.0),
        replace(links[0], ms=40.0),
        link("n1", "n3", ok=False, why="x", fix="y"),
    )
    marked = mark_slow_links([*links, slow, far, bad])
    assert [marked_link.why is None for marked_link in marked] == [True] * 5 + [False] * 3
    assert (
        all(marked_link.ok for marked_link in marked[:7])
        and "90 mbit/s" in str(marked[5].why)
        and "40.0 ms" in str(marked[6].why)
    )
    assert mark_slow_links(links[:2]) == tuple(links[:2])
