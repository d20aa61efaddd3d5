"""The program of classic BPF that tells the run's hosts from everybody else by the source address of a connection. Pure.

The kernel runs it for each new connection to a port; what it returns is the place of the socket in the group that shares the
port. `prefixes` admits no address that was not asked for.
"""

from __future__ import annotations

import socket
import struct

from tfdeploy.agent.annotations import Dict, Iterable, List, Tuple
from tfdeploy.agent.record import NamedTuple

_NETWORK = 0xFFF00000  # SKF_NET_OFF: offsets from here count from the network's header
_LOAD_BYTE, _LOAD_WORD, _AND, _SHIFT_RIGHT = 0x30, 0x20, 0x54, 0x74
_JUMP, _JUMP_IF_EQUAL, _RETURN = 0x05, 0x15, 0x06
_FARTHEST = 255  # a conditional jump
_SOURCE = {4: 12, 6: 8}  # by the version of IP
LOOPBACK = ("127.0.0.0/8", "::1/128")

Instruction = Tuple[int, int, int, int]  # code, jump if true, jump if false, value


class Prefix(NamedTuple):
    version: int
    value: int  # the bits behind the first `bits` are 0
    bits: int

    @property
    def size(self) -> int:
        return 32 if self.version == 4 else 128

    def word(self, number: int) -> int:
        """One of its words of 32 bits, the first with number 0."""
        return self.value >> (self.size - 32 * (number + 1)) & 0xFFFFFFFF


def prefix(text: str) -> Prefix:
    """Of an address or ADDRESS/BITS; IPv4 mapped into IPv6 is IPv4. Raises ValueError."""
    address, _, bits = text.partition("/")
    address = address.partition("%")[0]
    try:
        if ":" not in address:
            return Prefix(4, int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big"), int(bits or 32))
        packed = socket.inet_pton(socket.AF_INET6, address)
    except OSError as error:
        raise ValueError("%r is no address" % text[:100]) from error
    if packed[:12] == b"\0" * 10 + b"\xff\xff":
        return Prefix(4, int.from_bytes(packed[12:], "big"), int(bits or 128) - 96)
    return Prefix(6, int.from_bytes(packed, "big"), int(bits or 128))


def is_address(text: str) -> bool:
    """Return whether the text is an IP address, with or without a zone."""
    try:
        return bool(prefix(text))
    except ValueError:
        return False


def prefixes(addresses: Iterable[str]) -> List[Prefix]:
    """The fewest prefixes that hold exactly these addresses and those of loopback. Raises ValueError."""
    found = {prefix(text) for text in (*LOOPBACK, *addresses)}
    waiting = sorted(found, key=lambda one: one.bits)  # the longest last
    while waiting:
        one = waiting.pop()
        if one not in found or one.bits == 0:
            continue
        step = 1 << (one.size - one.bits)
        other, above = one._replace(value=one.value ^ step), Prefix(one.version, one.value & ~step, one.bits - 1)
        if other in found:
            found -= {one, other}
            found.add(above)
            waiting.append(above)
            waiting.sort(key=lambda each: each.bits)
    return sorted(one for one in found if not any(_holds(wide, one) for wide in found))


def is_loopback(one: Prefix) -> bool:
    return any(one == wide or _holds(wide, one) for wide in map(prefix, LOOPBACK))


def _holds(wide: Prefix, one: Prefix) -> bool:
    shift = wide.size - wide.bits
    return wide.version == one.version and wide.bits < one.bits and wide.value >> shift == one.value >> shift


def program(addresses: Iterable[str], peers: int, others: int) -> List[Instruction]:
    """Returns `peers` for connections from these addresses and this host itself, `others` for all else. May raise ValueError."""
    admitted = prefixes(addresses)
    found: List[Instruction] = [(_LOAD_BYTE, 0, 0, _NETWORK), (_SHIFT_RIGHT, 0, 0, 4)]
    for version in (4, 6):
        tests = _tests([one for one in admitted if one.version == version], 0, peers, others)
        found += _if_equal(version, tests + [(_RETURN, 0, 0, others)]) if version == 4 else tests
    return found + [(_RETURN, 0, 0, others)]


def pack(instructions: Iterable[Instruction]) -> bytes:
    """As the kernel takes them: struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *one) for one in instructions)


def _tests(admitted: List[Prefix], number: int, peers: int, others: int) -> List[Instruction]:
    """Returns `peers` where the words of the source from `number` on are in one of them; else it goes on behind these."""
    found: List[Instruction] = []
    whole: Dict[int, List[Prefix]] = {}
    for bits in sorted({one.bits for one in admitted if one.bits <= 32 * (number + 1)}, reverse=True):
        values = sorted(one.word(number) for one in admitted if one.bits == bits)
        found += _load(admitted[0].version, number, bits - 32 * number) + _any_of(values, peers)
    for one in admitted:
        if one.bits > 32 * (number + 1):
            whole.setdefault(one.word(number), []).append(one)
    found += _load(admitted[0].version, number, 32) if whole else []
    for value, longer in sorted(whole.items()):
        found += _if_equal(value, _tests(longer, number + 1, peers, others) + [(_RETURN, 0, 0, others)])
    return found


def _load(version: int, number: int, bits: int) -> List[Instruction]:
    load = [(_LOAD_WORD, 0, 0, _NETWORK + _SOURCE[version] + 4 * number)]
    return load if bits == 32 else load + [(_AND, 0, 0, 0xFFFFFFFF << (32 - bits) & 0xFFFFFFFF)]


def _any_of(values: List[int], peers: int) -> List[Instruction]:
    found: List[Instruction] = []
    for first in range(0, len(values), _FARTHEST):
        some = values[first : first + _FARTHEST]
        found += [(_JUMP_IF_EQUAL, len(some) - number, 0, value) for number, value in enumerate(some)]
        found += [(_JUMP, 0, 0, 1), (_RETURN, 0, 0, peers)]
    return found


def _if_equal(value: int, then: List[Instruction]) -> List[Instruction]:
    """`then`, which always returns, where the accumulator is `value`; else it goes on behind it."""
    if len(then) <= _FARTHEST:
        return [(_JUMP_IF_EQUAL, 0, len(then), value), *then]
    return [(_JUMP_IF_EQUAL, 1, 0, value), (_JUMP, 0, 0, len(then)), *then]
