"""Build a program of classic BPF that looks at the source address of each new connection to a port,
and so distinguishes the hosts of the run from strangers. The functions have no side effects.

Several sockets may listen on the port, and the kernel gives each of them an index. For each new
connection, the kernel runs the program, which returns the index of the socket that gets the
connection. Only connections from the given addresses and from loopback get the task's socket.
"""

from __future__ import annotations

import ipaddress
import struct

from tfdeploy.agent.annotations import Any, Dict, Iterable, List, Tuple, Union

# SKF_NET_OFF: an offset of _NETWORK + N means the byte N of the IP header.
_NETWORK = 0xFFF00000
_LOAD_BYTE, _LOAD_WORD, _AND, _SHIFT_RIGHT = 0x30, 0x20, 0x54, 0x74
_JUMP, _JUMP_IF_EQUAL, _RETURN = 0x05, 0x15, 0x06
_FARTHEST = 255  # a conditional jump can skip at most this many instructions
_SOURCE = {4: 12, 6: 8}  # IP version -> offset of the source address in the IP header
LOOPBACK = ("127.0.0.0/8", "::1/128")

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
Instruction = Tuple[int, int, int, int]  # operation code, jump if true, jump if false, value


def parse_address(text: str) -> Address:
    """Parse an IP address. A zone (after %) is removed. An IPv4 address that is mapped into IPv6
    becomes an IPv4 address. Raises ValueError."""
    parsed = ipaddress.ip_address(text.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def is_address(text: str) -> bool:
    """Return whether the text is an IP address, with or without a zone."""
    try:
        return bool(parse_address(text))
    except ValueError:
        return False


def is_loopback(address: Address) -> bool:
    return any(address in ipaddress.ip_network(each) for each in LOOPBACK)


def admitted_networks(addresses: Iterable[str]) -> List[Network]:
    """Return networks that together contain exactly these addresses and loopback, as few networks
    as possible. Raises ValueError if an address is invalid."""
    given: Dict[int, List[Any]] = {4: [], 6: []}
    for each in (*LOOPBACK, *map(parse_address, addresses)):
        network = ipaddress.ip_network(each)
        given[network.version].append(network)
    return [each for networks in given.values() for each in ipaddress.collapse_addresses(networks)]


def build_filter(
    addresses: Iterable[str], peers_value: int, others_value: int
) -> List[Instruction]:
    """Return a BPF program. It returns the number `peers_value` for connections from these
    addresses and from loopback, and the number `others_value` for all other connections. Raises
    ValueError if an address is invalid."""
    admitted = admitted_networks(addresses)
    tests_4, tests_6 = (
        _match_networks(
            [network for network in admitted if network.version == version],
            0,
            peers_value,
            others_value,
        )
        for version in (4, 6)
    )
    # The version is in the first four bits of the IP header.
    load_version = [(_LOAD_BYTE, 0, 0, _NETWORK), (_SHIFT_RIGHT, 0, 0, 4)]
    return load_version + _run_if_equal(4, tests_4) + tests_6


def pack(instructions: Iterable[Instruction]) -> bytes:
    """Return the instructions in the form that the kernel reads: an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


def _match_networks(
    admitted: List[Network], word_index: int, peers_value: int, others_value: int
) -> List[Instruction]:
    """Return instructions that search the source address in the networks `admitted`. The
    instructions return `peers_value` if a network contains the address, otherwise `others_value`.
    They compare only the 32-bit word `word_index` of the address and the words after it."""
    tests: List[Instruction] = []
    longer: Dict[int, List[Network]] = {}
    end = 32 * (word_index + 1)
    # {prefix length: for each network with this prefix length, the word `word_index` of its
    # address}. Networks with a prefix that is longer than this word are in `longer` instead.
    shorter: Dict[int, List[int]] = {}
    for network in admitted:
        word = _address_word(network, word_index)
        if network.prefixlen > end:
            longer.setdefault(word, []).append(network)
        else:
            shorter.setdefault(network.prefixlen, []).append(word)
    for bits, words in sorted(shorter.items(), reverse=True):
        tests += _load_word(admitted[0].version, word_index, bits - 32 * word_index)
        tests += _return_if_any(sorted(words), peers_value)
    tests += _load_word(admitted[0].version, word_index, 32) if longer else []
    for value, inner in sorted(longer.items()):
        tests += _run_if_equal(
            value, _match_networks(inner, word_index + 1, peers_value, others_value)
        )
    return tests + [(_RETURN, 0, 0, others_value)]


def _address_word(network: Network, word_index: int) -> int:
    """Return one 32-bit word of the network's address. The words are counted from 0."""
    return int.from_bytes(
        network.network_address.packed[4 * word_index : 4 * word_index + 4], "big"
    )


def _load_word(version: int, word_index: int, bits: int) -> List[Instruction]:
    load = [(_LOAD_WORD, 0, 0, _NETWORK + _SOURCE[version] + 4 * word_index)]
    return load if bits == 32 else load + [(_AND, 0, 0, 0xFFFFFFFF << (32 - bits) & 0xFFFFFFFF)]


def _return_if_any(values: List[int], result: int) -> List[Instruction]:
    """Return instructions that return `result` if the accumulator is equal to one of `values`."""
    instructions: List[Instruction] = []
    for first in range(0, len(values), _FARTHEST):
        some = values[first : first + _FARTHEST]
        instructions += [
            (_JUMP_IF_EQUAL, len(some) - number, 0, value) for number, value in enumerate(some)
        ]
        instructions += [(_JUMP, 0, 0, 1), (_RETURN, 0, 0, result)]
    return instructions


def _run_if_equal(value: int, then: List[Instruction]) -> List[Instruction]:
    """Return instructions that run the block `then` if the accumulator is equal to `value`, and
    otherwise skip this block. `then` always ends with a return."""
    if len(then) <= _FARTHEST:
        return [(_JUMP_IF_EQUAL, 0, len(then), value), *then]
    return [(_JUMP_IF_EQUAL, 1, 0, value), (_JUMP, 0, 0, len(then)), *then]
