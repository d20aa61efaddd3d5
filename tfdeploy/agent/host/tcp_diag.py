"""How many bytes each TCP connection of this host has moved, by the kernel (sock_diag), and the ports that sockets listen on.

Bytes count once the other side has acknowledged them, so neither keepalives nor what is sent into a dead network do.
Needs no privileges; where the kernel has no sock_diag, the answer is None.
"""

from __future__ import annotations

import socket
import struct

from tfdeploy.agent.annotations import Dict, Iterable, Optional
from tfdeploy.agent.record import NamedTuple

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_REQUEST, _DUMP, _DONE, _ERROR = 1, 0x300, 3, 2
_INFO = 2  # INET_DIAG_INFO: a struct tcp_info
_ESTABLISHED, _CLOSE_WAIT, _LISTEN = 1, 8, 10
_STATES = 1 << _ESTABLISHED | 1 << _CLOSE_WAIT | 1 << _LISTEN
_HEAD = struct.Struct("=LHHLL")
_MESSAGE_BYTES, _INODE_AT = 72, 68  # of struct inet_diag_msg
_BYTES_AT = 120  # of tcpi_bytes_acked in struct tcp_info; tcpi_bytes_received follows (Linux 4.1)
_SOURCE_AT, _ONLY_IPV6 = 8, 11  # of the message; the attribute INET_DIAG_SKV6ONLY
_WITHIN_S = 2.0


class Traffic(NamedTuple):
    moved: Dict[int, int]  # inode -> bytes, both ways
    listening: Dict[int, int]  # inode -> port
    apart: Dict[int, str] = {}  # inode -> address, of those that listen on some of the host's addresses, but for loopback


def look() -> Optional[Traffic]:
    """All TCP sockets of this network namespace; None: this kernel does not tell."""
    return _ask(_STATES, 1 << (_INFO - 1))


def listening() -> Optional[Dict[int, int]]:
    """inode -> port of those that listen. /proc/net/tcp says it too, but walks the whole table of connections: milliseconds."""
    found = _ask(1 << _LISTEN, 0)
    return None if found is None else found.listening


def open_to_all(ports: Iterable[int], but: Iterable[int]) -> Dict[int, str]:
    """Port -> the address at which a socket listens that is not in the group of one on all addresses of IPv4 and IPv6.
    `but`: inodes that are left out. Empty where the kernel does not tell."""
    told, left_out, found = _ask(1 << _LISTEN, 0), set(but), {}
    for inode, where in ({} if told is None else told.apart).items():
        port = told.listening[inode] if told is not None else 0
        if port in ports and inode not in left_out:
            found[port] = where
    return found


def _ask(states: int, extensions: int) -> Optional[Traffic]:
    found = Traffic({}, {}, {})
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
            link.settimeout(_WITHIN_S)
            for family in (socket.AF_INET, socket.AF_INET6):
                asked = struct.pack("=BBBBL", family, socket.IPPROTO_TCP, extensions, 0, states) + b"\0" * 48
                link.send(_HEAD.pack(_HEAD.size + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, family, 0) + asked)
                while not _take(link.recv(1 << 17), found):
                    pass
    except OSError:
        return None
    return found


def _take(data: bytes, found: Traffic) -> bool:
    """Reads the messages of one packet. True: those were the last. Raises OSError where the kernel refuses."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind, _, _, _ = _HEAD.unpack_from(data, at)
        if kind == _ERROR:
            raise OSError("sock_diag refused")
        if kind == _DONE or length < _HEAD.size:
            return True
        if kind == _SOCK_DIAG_BY_FAMILY:
            _socket(data[at + _HEAD.size : at + length], found)
        at += (length + 3) & ~3
    return False


def _apart(body: bytes) -> str:
    """Where a socket listens; "" for all addresses of IPv4 and IPv6, and for loopback."""
    if body[0] == socket.AF_INET:
        address = socket.inet_ntop(socket.AF_INET, body[_SOURCE_AT : _SOURCE_AT + 4])
        return "" if address.startswith("127.") else address
    address = socket.inet_ntop(socket.AF_INET6, body[_SOURCE_AT : _SOURCE_AT + 16])
    if address != "::":
        return "" if address == "::1" else address
    return ":: without IPv4" if _attribute(body, _ONLY_IPV6) else ""


def _attribute(body: bytes, wanted: int) -> int:
    """The first byte of an attribute behind the message; 0: it is not there."""
    at = _MESSAGE_BYTES
    while at + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, at)
        if kind == wanted and length > 4:
            return body[at + 4]
        if length < 4:
            break
        at += (length + 3) & ~3
    return 0


def _socket(body: bytes, found: Traffic) -> None:
    inode = struct.unpack_from("=L", body, _INODE_AT)[0]
    if body[1] == _LISTEN:
        found.listening[inode] = struct.unpack_from("!H", body, 4)[0]
        where = _apart(body)
        if where:
            found.apart[inode] = where
        return
    at = _MESSAGE_BYTES
    while at + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, at)
        if kind == _INFO and length >= 4 + _BYTES_AT + 16:
            found.moved[inode] = sum(struct.unpack_from("=QQ", body, at + 4 + _BYTES_AT))
        if length < 4:
            return
        at += (length + 3) & ~3
