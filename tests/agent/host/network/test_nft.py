"""Test the text of the nftables table of a run: one line that contains only numbers and parsed
addresses.
"""

from __future__ import annotations

import pytest

from tfdeploy.agent.host.network import nft

CLOSED = nft.ClosedPorts(
    name="tfdeploy_r",
    user=1000,
    ports=(2222, 2299),
    allowed=("10.0.0.1", "::ffff:10.0.0.2", "fd00::1"),
    elsewhere=(("10.0.0.2", 2223),),
)


def test_it_is_one_line_with_each_address_in_the_set_of_its_family() -> None:
    text = nft.build_table(CLOSED)
    assert text.count("\n") == 1 and text.endswith("\n")
    assert text.startswith("add table inet tfdeploy_r { flags owner; }; ")
    assert "allowed4 { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }; }" in text
    assert "allowed6 { type ipv6_addr; elements = { fd00::1 }; }" in text
    assert "run4 { type ipv4_addr . inet_service; elements = { 10.0.0.2 . 2223 }; }" in text
    assert "run6 { type ipv6_addr . inet_service; }" in text
    assert "meta skuid 1000 accept" in text


@pytest.mark.parametrize(
    "address",
    [
        "",
        "n1",
        "10.0.0.1 }",
        "10.0.0.0/8",
        "10.0.0.1\nflush ruleset",
        "fe80::1%eth0",
        "10.1",
        "\ud800",
        "١٠.0.0.1",
        None,
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        nft.build_table(CLOSED._replace(allowed=(address,)))
    with pytest.raises((ValueError, TypeError)):
        nft.build_table(CLOSED._replace(elsewhere=((address, 1),)))


@pytest.mark.parametrize("port", [0, -1, 65536, "22", None, 2.5])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(ValueError, match="no port"):
        nft.build_table(CLOSED._replace(ports=(port,)))


@pytest.mark.parametrize("run", ["digits-20261121-101500-3fa1", "a b;}", "é\n", "", "x" * 300, "١"])
def test_a_table_has_a_name_that_nft_takes_whatever_the_run_is_called(run: str) -> None:
    name = nft.table_name_prefix("/w/j/runs/r/hosts/h", run)
    assert (
        name.isascii()
        and name.replace("_", "").isalnum()
        and name.startswith("tfdeploy_")
        and len(name) < 100
    )


def test_runs_of_one_name_in_two_folders_have_tables_of_their_own() -> None:
    assert nft.table_name_prefix("/a", "r") != nft.table_name_prefix("/b", "r")
