"""The IP addresses of this machine's interfaces, by the kernel (rtnetlink)."""

from __future__ import annotations

import socket
import struct

from tfdeploy.agent.annotations import List

_NETLINK_ROUTE, _GET_ADDRESSES, _NEW_ADDRESS = 0, 22, 20
_REQUEST, _DUMP, _DONE, _ERROR = 1, 0x300, 3, 2
_ADDRESS, _LOCAL = 1, 2  # of a point-to-point link the first is the other end's
_HEAD = struct.Struct("=LHHLL")
_WITHIN_S = 2.0


def own_addresses() -> List[str]:
    """Without loopback and link-local ones, in the kernel's order; []: it does not tell."""
    found: List[str] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE) as link:
            link.settimeout(_WITHIN_S)
            link.send(_HEAD.pack(_HEAD.size + 8, _GET_ADDRESSES, _REQUEST | _DUMP, 1, 0) + b"\0" * 8)
            while not _take(link.recv(1 << 17), found):
                pass
    except OSError:
        return []
    return list(dict.fromkeys(address for address in found if not _is_local(address)))


def _take(data: bytes, found: List[str]) -> bool:
    """Reads the messages of one packet. True: those were the last."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind, _, _, _ = _HEAD.unpack_from(data, at)
        if kind in (_DONE, _ERROR) or length < _HEAD.size:
            return True
        if kind == _NEW_ADDRESS:
            found += _addresses(data[at + _HEAD.size : at + length])
        at += (length + 3) & ~3
    return False


def _addresses(body: bytes) -> List[str]:
    family, at, said = body[0], 8, {}
    while at + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, at)
        if length < 4:
            break
        said[kind] = body[at + 4 : at + length]
        at += (length + 3) & ~3
    packed = said.get(_LOCAL, said.get(_ADDRESS))
    return [socket.inet_ntop(family, packed)] if packed and family in (socket.AF_INET, socket.AF_INET6) else []


def _is_local(address: str) -> bool:
    return address.startswith(("127.", "169.254.", "fe8", "fe9", "fea", "feb")) or address == "::1"
