"""What hosts are called in the cluster, and which names and addresses are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.errors import Refused
from tfdeploy.model.inventory import Host
from tfdeploy.planning.cluster.addresses import Advertised, advertised, check


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
def test_called(address: str, advertise: str | None, sshd: str | None, expected: str, facts_of: Any) -> None:
    host = Host(name="n1", address=address, advertise=advertise)
    assert advertised(host, facts_of(host, ssh_server_address=sshd)).address == expected


def checked(facts_of: Any, *addresses: str, allow_public: bool = False, **loopback: tuple[str, ...]) -> tuple[str, ...]:
    found = {f"n{number}": Advertised(address, "") for number, address in enumerate(addresses, 1)}
    facts = {name: facts_of(Host(name=name, address=""), hosts_file_loopback=loopback.get(name, ())) for name in found}
    return check(found, facts, allow_public=allow_public)


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1", "127.0.0.1", "::1", "localhost"),
        ("10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1", "fd00::1", "gpu1.lan"),
    ],
)
def test_fine(addresses: tuple[str, ...], facts_of: Any) -> None:
    assert checked(facts_of, *addresses) == ()


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (("10.0.0.1", "127.0.0.1"), "n2 is called 127.0.0.1"),
        (("localhost", "gpu1"), "n1 is called localhost"),
        (("10.0.0.1", "8.8.8.8"), "n2 would stand in the cluster at the public address 8.8.8.8"),
        (("2606:4700::1111",), "public address"),
        (("0.0.0.0",), "no address"),
        (("224.0.0.1",), "no address"),
    ],
)
def test_refused(addresses: tuple[str, ...], words: str, facts_of: Any) -> None:
    with pytest.raises(Refused, match=words):
        checked(facts_of, *addresses)


def test_public_with_consent_is_said(facts_of: Any) -> None:
    (note,) = checked(facts_of, "10.0.0.1", "8.8.8.8", allow_public=True)
    assert "n2" in note and "8.8.8.8" in note


def test_a_name_that_is_loopback_on_a_host_of_the_run(facts_of: Any) -> None:
    with pytest.raises(Refused, match=r"calls n2 pc-02, and on n2 .*127\.0\.1\.1") as refused:
        checked(facts_of, "10.0.0.1", "pc-02", n2=("pc-02",))
    assert "advertise" in (refused.value.next or "")
    assert checked(facts_of, "10.0.0.1", "10.0.0.2", n2=("pc-02",)) == ()
