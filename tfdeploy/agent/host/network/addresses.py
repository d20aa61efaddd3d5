"""Read the IP addresses of this machine's interfaces from the kernel (rtnetlink)."""

from __future__ import annotations

import socket

from tfdeploy.agent.annotations import List, Optional
from tfdeploy.agent.host.network import netlink

_NETLINK_ROUTE, _GET_ADDRESSES = 0, 22
_HEAD_BYTES = 8  # the size of struct ifaddrmsg; its first byte is the address family
# Attributes of an address. On a point-to-point link, _ADDRESS is the address of the other end.
_ADDRESS, _LOCAL = 1, 2
_LOCAL_PREFIXES = ("127.", "169.254.", "fe8", "fe9", "fea", "feb")


def own_addresses() -> List[str]:
    """Return this machine's addresses in the order of the kernel, without loopback and link-local
    ones. Return [] if the kernel does not report them."""
    try:
        messages = list(netlink.request(_NETLINK_ROUTE, _GET_ADDRESSES, b"\0" * _HEAD_BYTES))
    except OSError:
        return []
    addresses = filter(None, map(_parse_address, messages))
    return list(
        dict.fromkeys(
            each for each in addresses if not each.startswith(_LOCAL_PREFIXES) and each != "::1"
        )
    )


def _parse_address(message: bytes) -> Optional[str]:
    family, values = message[0], netlink.parse_attributes(message, _HEAD_BYTES)
    packed = values.get(_LOCAL, values.get(_ADDRESS))
    return (
        socket.inet_ntop(family, packed)
        if packed and family in (socket.AF_INET, socket.AF_INET6)
        else None
    )
