"""Test which ports the tasks on a host get: the first free ports in the host's range.

Hosts with the same address must not use the same port twice.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Host
from tfdeploy.planning.cluster.ports import assign_ports, shared_port_key


def assigned_ports(
    hosts: dict[str, tuple[str, int, int, int]], facts_of: Any, **changed_facts: Any
) -> dict[str, tuple[int, ...]]:
    """Return the ports that tfdeploy assigns to each host.

    `hosts` maps a name to (address, lowest port, highest port, number of ports that are needed).
    """
    known = {
        name: Host(name=name, address=address, ports=(low, high))
        for name, (address, low, high, _) in hosts.items()
    }
    facts = {name: facts_of(host, **changed_facts) for name, host in known.items()}
    addresses = {name: address for name, (address, *_) in hosts.items()}
    return assign_ports(
        {name: needed for name, (*_, needed) in hosts.items()}, known, facts, addresses
    )


def test_first_free_ports_of_range(facts_of: Any) -> None:
    assert assigned_ports(
        {"n1": ("10.0.0.1", 5, 9, 3)}, facts_of, free_ports=(1, 2, 9, 7, 6, 12)
    ) == {"n1": (6, 7, 9)}


def test_ports_in_time_wait_are_avoided_on_request(facts_of: Any) -> None:
    host = Host(name="n1", address="10.0.0.1", ports=(5, 9))
    facts = {"n1": facts_of(host, free_ports=(6, 8, 9, 5, 7))}
    given = [
        assign_ports({"n1": 3}, {"n1": host}, facts, {"n1": host.address}, avoid_waiting=avoid)
        for avoid in (False, True)
    ]
    assert given == [{"n1": (5, 6, 7)}, {"n1": (6, 8, 9)}]


def test_separate_hosts_may_use_same_ports(facts_of: Any) -> None:
    assert assigned_ports({"n1": ("10.0.0.1", 5, 9, 2), "n2": ("10.0.0.2", 5, 9, 2)}, facts_of) == {
        "n1": (5, 6),
        "n2": (5, 6),
    }


def test_hosts_with_same_address_share_ports(facts_of: Any) -> None:
    hosts = {"n1": ("10.0.0.1", 5, 9, 2), "n2": ("10.0.0.1", 5, 9, 3)}
    assert assigned_ports(hosts, facts_of) == {"n1": (5, 6), "n2": (7, 8, 9)}


def test_all_loopback_addresses_share_ports(facts_of: Any) -> None:
    hosts = {"n1": ("127.0.0.1", 5, 9, 2), "n2": ("127.0.0.2", 5, 9, 2), "n3": ("::1", 9, 9, 1)}
    assert assigned_ports(hosts, facts_of) == {"n1": (5, 6), "n2": (7, 8), "n3": (9,)}
    assert (
        shared_port_key("localhost")
        == shared_port_key("127.3.2.1")
        == shared_port_key("::1")
        != shared_port_key("10.0.0.1")
    )


def test_host_with_narrow_range_chooses_first(facts_of: Any) -> None:
    hosts = {"wide": ("127.0.0.1", 5, 20, 4), "zz-narrow": ("127.0.0.1", 5, 6, 2)}
    assert assigned_ports(hosts, facts_of) == {"wide": (7, 8, 9, 10), "zz-narrow": (5, 6)}


def test_error_for_too_few_ports_names_host_range_ports_and_owners(facts_of: Any) -> None:
    with pytest.raises(Refused) as refused:
        assigned_ports(
            {"n1": ("10.0.0.1", 5, 7, 3)},
            facts_of,
            free_ports=(5, 6),
            taken_ports={"7": "nginx (80)", "99": "else"},
        )
    message = refused.value.what
    assert all(word in message for word in ("n1 needs 3", "5-7", "2 are free", "7 by nginx (80)"))
    assert "99" not in message
    assert (refused.value.next or "").startswith("free them, or widen `ports:` of n1")
    with pytest.raises(Refused) as none_taken:
        assigned_ports({"n1": ("10.0.0.1", 5, 5, 2)}, facts_of, free_ports=(5,), taken_ports={})
    assert (none_taken.value.next or "").startswith("widen `ports:` of n1")


def test_error_names_other_host_that_uses_ports(facts_of: Any) -> None:
    with pytest.raises(Refused, match="5 by n1, 6 by n1"):
        assigned_ports({"n1": ("127.0.0.1", 5, 7, 2), "n2": ("127.0.0.1", 5, 7, 2)}, facts_of)
