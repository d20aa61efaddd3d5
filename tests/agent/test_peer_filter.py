"""Test that the packet filter accepts exactly the addresses of the run. The tests execute the
filter in an interpreter of classic BPF.
"""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import peer_filter

PEERS, OTHERS = 1, 0
_NEAR = st.integers(0, 40).map(lambda number: f"10.0.0.{number}")
_V4 = st.one_of(_NEAR, st.ip_addresses(v=4).map(str))
_V6 = st.one_of(
    st.integers(0, 40).map(lambda number: f"fd00:1:2:3::{number:x}"),
    st.integers(0, 40).map(lambda number: f"fd00:{number:x}::1"),
    st.ip_addresses(v=6).map(str),
)
_ADDRESS = st.one_of(_V4, _V6, _NEAR.map(lambda address: f"::ffff:{address}"))


def packet(address: str) -> bytes:
    """Return the network header of a SYN packet from this address."""
    parsed = ipaddress.ip_address(address)
    packed = parsed.ipv4_mapped or parsed if isinstance(parsed, ipaddress.IPv6Address) else parsed
    if packed.version == 4:
        return b"\x45" + bytes(11) + packed.packed + socket.inet_aton("10.0.0.1")
    return b"\x60" + bytes(7) + packed.packed + bytes(16)


def run(program: list[peer_filter.Instruction], header: bytes) -> int:
    """Execute a program of classic BPF on a packet header, and return the result. Only the
    instructions that the filter uses are implemented.

    The test fails if an offset is outside the header, or if a jump leads past the program's end.
    """
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        assert 0 <= if_true <= 255 and 0 <= if_false <= 255 and 0 <= value < 1 << 32
        at += 1
        offset = value - 0xFFF00000
        if code == 0x30:
            accumulator = header[offset]
        elif code == 0x20:
            accumulator = int.from_bytes(header[offset : offset + 4], "big")
            assert offset + 4 <= len(header)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x74:
            accumulator >>= value
        elif code == 0x05:
            at += value
        elif code == 0x15:
            at += if_true if accumulator == value else if_false
        else:
            assert code == 0x06
            return value


@given(st.lists(_ADDRESS, max_size=60), st.lists(_ADDRESS, min_size=1, max_size=20))
def test_it_admits_the_given_addresses_and_nobody_else(given_: list[str], asked: list[str]) -> None:
    program = peer_filter.build_filter(given_, PEERS, OTHERS)
    wanted = {packet(address) for address in given_}
    for address in [*given_, *asked]:
        parsed = ipaddress.ip_address(address)
        mapped = getattr(parsed, "ipv4_mapped", None) or parsed
        expected = packet(address) in wanted or mapped.is_loopback
        assert run(program, packet(address)) == (PEERS if expected else OTHERS), address


def test_neighbours_are_merged_only_where_that_admits_nobody_else() -> None:
    networks = peer_filter.admitted_networks(f"10.0.0.{number}" for number in range(1, 8))
    assert list(map(str, networks))[:3] == ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/30"]
    assert (
        len(
            peer_filter.build_filter(
                [f"10.0.{high}.{low}" for high in range(8) for low in range(256)], 1, 0
            )
        )
        < 30
    )


def test_many_addresses_that_do_not_merge_keep_the_jumps_short() -> None:
    given_ = [f"10.{number >> 7}.{number & 127}.{number % 50 * 5}" for number in range(900)]
    program = peer_filter.build_filter(given_, PEERS, OTHERS)
    assert len(program) < 1250
    assert all(run(program, packet(address)) == PEERS for address in given_)
    assert run(program, packet("11.0.0.1")) == run(program, packet("fd00::1")) == OTHERS


@pytest.mark.parametrize("text", ["", "n1", "1.2.3", "1.2.3.4.5", ":::"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        peer_filter.build_filter([text], PEERS, OTHERS)
