"""Test under which address the tasks of a cluster reach each host, and which names and addresses
are refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Host
from tfdeploy.planning.cluster.addresses import (
    AdvertisedAddress,
    advertised_address,
    refuse_or_note_addresses,
    resolved_addresses,
)


@pytest.mark.parametrize(
    ("address", "advertise", "sshd", "expected"),
    [
        ("198.51.100.7", "10.0.0.7", "10.9.9.9", "10.0.0.7"),
        ("198.51.100.7", "gpu1.lan", None, "gpu1.lan"),
        ("192.0.2.1", None, "10.9.9.9", "192.0.2.1"),
        ("[2001:db8::2]", None, None, "2001:db8::2"),
        ("gpu1", None, "10.9.9.9", "10.9.9.9"),
        ("localhost", None, "127.0.0.1", "127.0.0.1"),
    ],
)
def test_advertised_address(
    address: str, advertise: str | None, sshd: str | None, expected: str, facts_of: Any
) -> None:
    host = Host(name="n1", address=address, advertise=advertise)
    assert advertised_address(host, facts_of(host, ssh_server_address=sshd)).address == expected


def check_facts(
    facts_of: Any, *addresses: str, allow_public: bool = False, **loopback: tuple[str, ...]
) -> tuple[str, ...]:
    advertised = {
        f"n{number}": AdvertisedAddress(address, "") for number, address in enumerate(addresses, 1)
    }
    facts = {
        name: facts_of(Host(name=name, address=""), hosts_file_loopback=loopback.get(name, ()))
        for name in advertised
    }
    return refuse_or_note_addresses(advertised, facts, allow_public=allow_public)


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1", "127.0.0.1", "::1", "localhost"),
        (
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "fd00::1",
            "gpu1.lan",
        ),
    ],
)
def test_accepted_addresses(addresses: tuple[str, ...], facts_of: Any) -> None:
    assert check_facts(facts_of, *addresses) == ()


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (("10.0.0.1", "127.0.0.1"), "the address of n2 is 127.0.0.1"),
        (("localhost", "gpu1"), "the address of n1 is localhost"),
        (
            ("10.0.0.1", "8.8.8.8"),
            "the address of n2 in the cluster would be the public address 8.8.8.8",
        ),
        (("2606:4700::1111",), "public address"),
        (("0.0.0.0",), "no address"),
        (("224.0.0.1",), "no address"),
    ],
)
def test_refused_addresses(addresses: tuple[str, ...], words: str, facts_of: Any) -> None:
    with pytest.raises(Refused, match=words):
        check_facts(facts_of, *addresses)


def test_public_address_with_consent_gives_note(facts_of: Any) -> None:
    (note,) = check_facts(facts_of, "10.0.0.1", "8.8.8.8", allow_public=True)
    assert "n2" in note and "8.8.8.8" in note


def test_name_that_is_loopback_on_host_of_run_is_refused(facts_of: Any) -> None:
    with pytest.raises(
        Refused, match=r"n2 resolves pc-02, the address of n2, to a loopback .*127\.0\.1\.1"
    ) as refused:
        check_facts(facts_of, "10.0.0.1", "pc-02", n2=("pc-02",))
    assert "advertise" in (refused.value.next or "")
    assert check_facts(facts_of, "10.0.0.1", "10.0.0.2", n2=("pc-02",)) == ()


def facts_resolving(facts_of: Any, **seen: tuple[str, ...] | None) -> dict[str, Any]:
    """Return facts about hosts. `seen` is {host: the addresses to which this host resolves the name
    pub.lan}.

    If the value of a host is None, the host reports no addresses for this name.
    """
    resolved_by_host = {
        name: {} if addresses is None else {"pub.lan": addresses}
        for name, addresses in seen.items()
    }
    return {
        name: facts_of(Host(name=name, address=""), resolved=resolved)
        for name, resolved in resolved_by_host.items()
    }


@pytest.mark.fault("58 a name that is a public address")
@pytest.mark.parametrize(
    "seen",
    [
        {"n1": ("8.8.8.8",), "n2": ("8.8.8.8",)},
        {"n1": ("10.0.0.1",), "n2": ("10.0.0.1", "8.8.8.8")},
        {"n1": None, "n2": ("2001:4860:4860::8888",)},
        {"n1": None, "n2": ("::ffff:8.8.8.8",)},
    ],
)
def test_name_that_is_public_on_one_host_is_refused(facts_of: Any, seen: dict[str, Any]) -> None:
    by_name = {"n1": AdvertisedAddress("pub.lan", ""), "n2": AdvertisedAddress("10.0.0.2", "")}
    with pytest.raises(
        Refused,
        match=r"n1 in the cluster would be pub\.lan, which n[12] resolves to the public address",
    ) as error:
        refuse_or_note_addresses(by_name, facts_resolving(facts_of, **seen), allow_public=False)
    assert "--allow-public" in str(error.value.next)
    (note, *_) = refuse_or_note_addresses(
        by_name, facts_resolving(facts_of, **seen), allow_public=True
    )
    assert note.startswith("the address of n1 in the cluster is pub.lan, which n")
    assert "resolves to the public address" in note


def test_name_that_hosts_resolve_differently_gives_note(facts_of: Any) -> None:
    by_name = {
        "n1": AdvertisedAddress("pub.lan", ""),
        "n2": AdvertisedAddress("10.0.0.2", ""),
        "n3": AdvertisedAddress("10.0.0.3", ""),
    }
    facts = facts_resolving(
        facts_of, n1=("10.0.0.1", "10.9.0.1"), n2=("10.9.0.1", "10.0.0.1"), n3=()
    )
    assert refuse_or_note_addresses(by_name, facts, allow_public=False) == (
        "the hosts resolve pub.lan (host n1) to different addresses: "
        "10.0.0.1, 10.9.0.1 on n[1-2]; no address on n3",
    )
    assert (
        refuse_or_note_addresses(
            by_name,
            facts_resolving(facts_of, n1=("10.0.0.1",), n2=("10.0.0.1",), n3=None),
            allow_public=False,
        )
        == ()
    )


def test_address_resolved_by_most_hosts_is_used(facts_of: Any) -> None:
    facts = facts_resolving(
        facts_of, n1=("10.0.0.1",), n2=("10.0.0.1", "10.0.0.4"), n3=("10.6.6.6",), n4=None
    )
    assert resolved_addresses("pub.lan", facts) == ("10.0.0.1",)
    assert resolved_addresses("10.0.0.2", facts) == ()
